"""The console: one page over all labs, networks and records of this machine, in a browser (`testbed console`).

A request comes in by `listening` and passes the `guard`, which knows who may ask. `application` has the addresses.
Behind them stands a *source*: a lab that is up (`live`), or a run of a record that is played back; both answer alike. A
lab is read by one thread for all pages (`counters`, `live`); what changed goes out as one sequence of messages
(`stream`), the same bytes to everybody. Views and actions are registered (`view`, `action`), and do what they do by
`testbed.api` and by the command line itself (`tasks`): the console knows no way of its own to change a lab.
"""
