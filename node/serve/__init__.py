"""The OpenAI-compatible HTTP interface of a run; knows no hivemind and opens no swarm itself.

server        uvicorn on an event loop that runs already, and the socket it listens on
app           routes, and what becomes of an error
guard         who may ask: the API key, or this machine only
completions   POST /v1/completions
schema        the request's fields, and the documents that answer it
answer        bytes drawn -> whole characters, stop sequences, log-probabilities
event_stream  server-sent events
connection    bodies with a cap, and work that ends with its client
health        GET /healthz
served_run    the run behind all of it
api_error     errors in OpenAI's shape
"""
