"""Every timeout, lifetime and size cap of the protocol, with its unit and its reason."""

from typing import Final

PROTOCOL_VERSION: Final = 1
"""Peers of another version do not talk to each other."""

# Sizes
MAX_RECORD_SIZE_BYTES = 3 * 1024
"""One DHT value; several writers share hivemind's control pipe, which keeps messages up to 4 KiB whole."""
MAX_MANIFEST_SIZE_BYTES = 2 * 1024
"""A canonical manifest; it travels as one DHT value."""
MAX_MEMBERSHIP_SIZE_BYTES = 128
"""The owner's signature that lets a peer hold blocks of a closed run; it needs 72."""
MAX_FRAME_HEADER_SIZE_BYTES = 64 * 1024
"""The msgpack header of one stream frame."""
MAX_FRAME_BODY_SIZE_BYTES = 16 * 1024 * 1024
"""The raw body of one stream frame; larger tensors go in several frames."""
MAX_WEIGHTS_SIZE_BYTES = 8 * 1024**3
"""Largest block whose weights a newcomer accepts from a replica."""
WEIGHTS_CHUNK_SIZE_BYTES = 256 * 1024
"""Weights are fetched and checked in chunks of this size; at 20 Mbit/s one takes a tenth of a second."""
MAX_DOWNLOADS = 4
"""Peers that download the weights of one block from one holder at once; others are told to ask elsewhere."""
MAX_OLD_SNAPSHOTS = 2
"""Snapshots of earlier rounds that a holder keeps for those who still download them."""
MAX_OLD_SNAPSHOTS_SIZE_BYTES = 512 * 1024**2
"""All of them but one; of a large block only one is kept."""
MAX_REQUEST_SEQUENCES = 64
"""Sequences in one forward request from a stranger."""
MAX_CACHES_SIZE_BYTES = 256 * 1024**2
"""Keys and values that one holder keeps for its clients; the oldest go first."""
MAX_ASKER_CACHES_SIZE_BYTES = 128 * 1024**2
"""Those of one client; half of all, so that one client never takes the memory of the others."""
MAX_BATCH_TOKENS = 512
"""New tokens that a holder computes in one pass; more are hardly faster for each, and others wait."""
MAX_WAITING_REQUESTS = 32
"""Requests of one client that a holder lets wait; a quarter of all that it answers, so that others get in."""
MAX_UNCLAIMED_SIZE_BYTES = 64 * 1024**2
"""z and features that holders have handed on before the client asked for what follows."""
UNCLAIMED_TTL_S = 10.0
"""They are dropped after this time."""
LINK_ID_SIZE_BYTES = 16
"""A client's secret name of one hop of a forwarded traversal."""
CACHE_ID_SIZE_BYTES = 16
"""A client's secret name of its cache at a holder."""
MAX_SPAN_BLOCKS = 16
"""Neighbouring blocks that one peer serves."""
MAX_CONCURRENT_REQUESTS = 128
"""Requests one holder answers at once; more are refused, not queued. A quarter of them is one client's."""
MAX_BUNDLE_FRAMES = 16
"""Requests in one frame."""
MAX_OPEN_STREAMS = 256
"""Streams that strangers have open to one holder, idle ones too; a quarter of them is one client's."""
MAX_BODIES_SIZE_BYTES = 256 * 1024**2
"""Bodies of the requests that one holder receives or answers; a quarter of them is one client's."""
MAX_PEER_REQUESTS_PER_S = 1000.0
"""Requests of one client; over loopback a busy one comes to a few hundred."""
MAX_PEER_BYTES_PER_S = 64.0 * 1024**2
"""Bodies that one client sends: a link of half a gigabit per second."""
PEER_BURST_S = 4.0
"""After a quiet time a client may send so many seconds' worth at once."""
MAX_MALFORMED_MESSAGES = 16
"""Malformed messages that a peer may send within `MALFORMED_PENALTY_S`."""
MALFORMED_PENALTY_S = 60.0
"""A peer that sent more is refused for this time."""
MAX_QUOTA_PEERS = 1024
"""Peers whose quotas are remembered; more than can have streams open."""
MAX_DIAL_BACK_ADDRESSES = 4
"""Addresses that one peer asks another to dial."""
MAX_ECHO_SIZE_BYTES = 1024**2
"""Bytes that a peer sends back, so that the link can be timed."""
MAX_CHECKUPS = 8
"""Peers that one peer checks at the same time; more are refused."""
CHECKUP_BURST = 30
"""Checks that the peers of one IP address may ask for at once ..."""
CHECKUP_REFILL_S = 5.0
"""... and then one in this time."""

# Leases
LEASE_TTL_S = 30.0
"""A lease lives this long; a dead peer is gone from every view after it."""
LEASE_RENEW_S = 10.0
"""Leases are renewed this often, so two renewals may be lost."""
MAX_LEASE_TTL_S = 60.0
"""Readers refuse leases that claim to live longer."""
MANIFEST_TTL_S = 600.0
"""Manifests in the DHT live this long and are renewed by every peer that holds them."""
MAX_RECORD_TTL_S = 900.0
"""Nothing in our DHT may claim to live longer than this."""
MAX_CLOCK_SKEW_S = 5.0
"""Tolerated difference between a record's issue time and ours."""
MAX_CLOCK_LEAD_S = 2.0
"""A node whose clock differs more from the swarm's does not average: groups wait less than that."""

# Waits
DHT_TIMEOUT_S = 10.0
"""One DHT read or write."""
DHT_ANSWER_S = 1.5
"""A peer of the DHT that has not answered after this time is left out of a look-up. Every look-up asks
all peers near its key, so one that is silent delays all others by this much, those that look for
partners too: it must fit several times into `MATCHMAKING_S + LATE_PARTNER_S`."""
DHT_SILENT_S = 10.0
"""A peer that did not answer is not asked again for this time; twice as long each time in a row."""
DIAL_TIMEOUT_S = 5.0
"""Opening a stream to a peer."""
IDLE_STREAM_S = 30.0
"""A holder closes a stream on which no request comes for this long; clients use it half as long."""
DOWNLOAD_IDLE_S = 10.0
"""A download of which no chunk is asked for so long has ended, and makes room for another."""
SNAPSHOT_IDLE_S = 60.0
"""A snapshot of an earlier round is kept so long after its last chunk: a newcomer may restart."""
READ_TIMEOUT_S = 20.0
"""One frame from a peer that is computing."""
START_TIMEOUT_S = 20.0
"""Starting the DHT process and the peer-to-peer daemon."""
STOP_TIMEOUT_S = 8.0
"""Everything a node does between a signal and its exit."""
SETTLE_S = 2.0
"""Newcomers wait this long between announcing themselves and choosing a block."""

# Watching oneself
HEALTH_PERIOD_S = 10.0
"""Pause between two looks at the node's own processes."""
HEALTH_TIMEOUT_S = 10.0
"""A process of the node that does not answer a small call for so long, twice in a row, is broken."""
MAX_REBUILDS_IN_A_ROW = 8
"""A node that breaks so often, each time soon after its start, ends."""
MAX_REBUILD_S = 60.0
"""Longest pause before a broken node starts again; the first is a second, each twice the last."""
HEALTHY_AFTER_S = 600.0
"""A node that has run so long is whole: what breaks now counts as the first time."""
REBUILD_GRACE_S = 30.0
"""A broken node has so long to save its state before it is replaced as it is."""
NEIGHBOURS_PERIOD_S = 5.0
"""Pause between two looks at the node's connections."""
CLOCK_PERIOD_S = 60.0
"""Pause between two comparisons of clocks."""
ISOLATED_AFTER_S = 60.0
"""A node without a neighbour for so long shows that it is isolated."""
MIN_REDIAL_S = 2.0
"""First pause of a node that dials known peers in vain; doubled each time."""
MAX_REDIAL_S = 60.0
"""Longest of these pauses."""
ROUTINE_REDIAL_S = 120.0
"""A node with neighbours dials some known peers that are not among them this often."""
STALL_STEPS = 20
"""A node that makes no step for so many times the usual time of one is stalled ..."""
MIN_STALL_S = 30.0
"""... but not before this time, ..."""
FIRST_STEP_S = 180.0
"""... and before its first step, for which a GPU may have to be prepared, not before this one."""
SILENT_AFTER_S = 30.0
"""A node writes its snapshot every second; one that is older shows that the node is frozen."""
ROUNDS_WITHOUT_AVERAGE = 3
"""A node that had or has partners warns when so many rounds in a row ended without an average."""
TOKEN_WARNING_S = 7 * 86_400.0
"""A node warns so long before its run token expires: its owner has to ask another person."""
TWIN_PERIOD_S = 30.0
"""Pause between two looks for another node that uses this node's key."""
TWIN_GONE_S = 120.0
"""It is gone when no lease of it was seen for so long: each look may miss it, so four of them."""

# Rounds
MATCHMAKING_S = 3.0
"""Replicas that reach the end of a round look for each other this long."""
LOOK_BEFORE_SEARCH_S = 3.0
"""So long before the search for a group, leases are renewed and read. Peers that do not answer are found out
then, and delay nobody in the search; a lease that is not new by then is that of a dead replica."""
FRESH_LEASE_S = 9.0
"""A replica whose lease is older than this is not expected, though it is looked for: less than `LEASE_RENEW_S`,
and less than a round of 10 s, so that whoever died in the round before is known to be gone."""
STRANGER_PENALTY_S = 600.0
"""A peer that led a group with somebody who must not average in a closed run is not followed for this time."""
LATE_PARTNER_S = 1.5
"""After the end of a round a replica waits this long for a group before it goes on alone, or a third of a
round if that is shorter."""
MAX_ROUND_LAG = 3
"""Replicas further apart than this do not average; the one behind fetches first."""
MIN_TRANSFER_BYTES_PER_S = 1_000_000
"""Slowest link in bytes per second for which averaging deadlines are sized."""
MAX_WEIGHT_RATIO = 4.0
"""Samples a replica claims count at most this many times the group's lower median of them."""
MAX_REMEMBERED_PEERS = 256
"""Replicas of whom a node keeps an opinion; the least suspicious are forgotten first."""
