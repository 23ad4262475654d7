"""One lab over several machines (experimental): who brings the machines together, over SSH.

On each machine a process of ours (`part_server`) is asked over a command under a tether, a line of JSON for each
question. A deploy has two phases: all machines are looked at and compared, and the underlay between them measured,
before anything is made; then every machine claims the lab's name and slot, and only when all have does any of them make
its part, with a journal of its own. What fails on one is undone on all.

Which machines a lab is on is kept here (`records`), in a file of the user's, from before anything is made until all of
it is gone: `destroy` needs that file, or each machine's own journal, and nothing else.
"""
