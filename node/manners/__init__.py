"""When a node may train, and how much of the machine it may take.

settings    what the user allows, checked
sources     flags over environment over file over default
wishes      what the user asked a node for while it ran, kept over restarts
decision    may it train now, and if not, why and until when: one pure function
machine     what the machine does besides: load of others, battery
manners     all of it, for a node that runs
"""
