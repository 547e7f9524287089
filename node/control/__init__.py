"""How a user's commands reach the node that runs: a socket in its state folder.

messages    requests and answers, as lines of JSON
socket      the socket's place, and who may use it
server      in the node
client      in the commands
"""
