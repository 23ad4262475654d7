"""The kit that every daemon of a lab is made of, whatever it does.

A command writes the file that a daemon is started from (`configuration`), starts it and waits until it is at work
(`process`). Where it is asked things while it works, it has a socket (`control`) that commands ask over (`client`); it
tells of what happens in a file of events (`events`). One that is a module of its own has its start and its questions in
one place (`ready_daemon`). A lock tells whether one serves already (`lock`). What must react within microseconds takes
real-time priority (`realtime`).
"""
