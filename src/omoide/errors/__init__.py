"""What can go wrong, and what should be done about it?

```
OmoideError
├── Invalid                 (ValueError)  something given is wrong: field, problem, remedy
│   ├── WrongType           (TypeError)   it is of another type than the field takes
│   ├── Unsupported                       a value, at a path, that no codec can hold without loss
│   ├── TooLarge                          a space or an item beyond the space's limit
│   ├── WrongSpaceType                    a map operation on a list space, or the reverse
│   ├── ReservedSpace                     deleting or retyping `world` or `tasks`
│   ├── InvalidParams                     an action's parameters
│   ├── InvalidState                      an agent's state breaks its schema or its slots
│   ├── InvalidRecord                     an entry, a request or a result of the store contract
│   ├── IdTaken                           an id that is in use elsewhere in its namespace
│   │   └── OwnedElsewhere                an agent that lives in another place of its fleet
│   ├── SignalTooLarge                    a signal beyond what a transport takes
│   ├── Refused                           content that a hook before the write does not let pass
│   ├── EmbedderChanged                   a store whose vectors come from another embedder
│   ├── MissingStore                      memory was asked for without a store to keep it in
│   ├── MissingSession                    memory of a session was asked for without saying which
│   ├── MissingProject                    memory of a project was asked for without saying which
│   ├── MissingNamespace                  a namespace comes from the context, and the context lacks it
│   ├── OverBudget                        an input that does not fit into the context window
│   ├── InvalidQuery                      SPARQL that is wrong, or asks for what no query may do
│   ├── InvalidRDF                        a file that cannot be read as RDF, or as memories
│   ├── Contradiction                     a memory that contradicts others, where that is refused
│   ├── Incomplete                        a memory that lacks what its type needs, where that is refused
│   └── InvalidDefinition                 an action, plugin or agent declared wrongly
│       └── CapabilityDrift               an identity claims actions that nothing offers
├── NotFound                (LookupError) a named thing does not exist
│   ├── NotRunning                        no agent of this id lives here
│   └── Erased                            it was erased, and only its tombstone is left
├── Conflict                              the revision expected is not the revision found
│   └── KeyReused                         an idempotency key that came with another request before
├── StoreFailed                           a store could not do what was asked; nothing was changed
│   ├── Corrupted                         its file is damaged
│   ├── ReadOnly                          it cannot be written to
│   ├── DiskFull                          there is no room left for it
│   ├── Busy                              another process held it for too long
│   ├── StoreUnreachable                  its server does not answer, or lets nobody in
│   ├── Uncertain                         it was lost while it was to keep something
│   ├── WrongVersion                      its file was made by a newer Omoide
│   ├── Closed                            it was used after it had been closed
│   ├── EndpointFailed                    a SPARQL endpoint is down, refuses, or talks nonsense
│   └── QueryStopped                      a query took too long or too much memory
├── ServiceFailed                         a service could not be asked, or did not do it
│   ├── Unreachable                       there was no connection, or it broke
│   ├── NotAllowed                        there is no token, or it does not allow this
│   └── TooManyRequests                   it was asked more often than it allows
├── NotCapable                            an identity does not declare what a tool needs
├── MissingExtra            (ImportError) a part of Omoide needs packages that are not installed
├── ModelUnavailable                      model files are absent, wrong, or could not be fetched
├── EmbedderFailed                        an embedder raised, or gave something that is no vector
├── ModelFailed                           a language model did not answer
│   ├── ModelRefused                      it turned the request down: key, quota, name, content
│   ├── ModelOverloaded                   it is too busy to answer now
│   ├── ModelUnreachable                  there was no connection, or it broke
│   ├── ModelTimedOut                     it took too long
│   └── ModelMisbehaved                   what it answered makes no sense
├── TurnFailed                            a turn could not be finished
│   ├── Blocked                           a control refused its input or its answer
│   ├── TooManyRounds                     the model asked for tools again and again
│   ├── ReviewNeeded                      somebody has to decide before it can go on
│   └── Diverged                          a replay asks for something that its journal does not hold
├── SessionBusy                           somebody else is running the session
├── TurnPending                           the session has a turn that did not finish
├── Unrouted                              a signal that an agent has no route for
├── Dropped                               a signal that will not be handled
│   └── MailboxFull                       an agent has as many waiting as it takes
├── TimedOut                              something took longer than it was given
├── TooManyAgents                         a runtime or a parent takes no more
├── GaveUp                                something failed again and again, and is not started any more
├── MountFailed                           a plugin could not be mounted
├── CheckpointFailed                      a plugin's slice could not be saved
└── RestoreFailed                         a checkpoint could not be restored
```

Every error says what happened, to which thing, and what to do next, and carries the same as attributes.
"""

from __future__ import annotations

from omoide.errors.answering import (
    Blocked,
    Diverged,
    ModelFailed,
    ModelMisbehaved,
    ModelOverloaded,
    ModelRefused,
    ModelTimedOut,
    ModelUnreachable,
    ReviewNeeded,
    SessionBusy,
    TooManyRounds,
    TurnFailed,
    TurnPending,
)
from omoide.errors.failing import (
    Busy,
    CheckpointFailed,
    Closed,
    Conflict,
    Corrupted,
    DiskFull,
    EmbedderFailed,
    EndpointFailed,
    Erased,
    KeyReused,
    MissingExtra,
    ModelUnavailable,
    MountFailed,
    NotAllowed,
    NotCapable,
    NotFound,
    QueryStopped,
    ReadOnly,
    RestoreFailed,
    ServiceFailed,
    StoreFailed,
    StoreUnreachable,
    TooManyRequests,
    Uncertain,
    Unreachable,
    WrongVersion,
)
from omoide.errors.giving import (
    CapabilityDrift,
    Contradiction,
    EmbedderChanged,
    IdTaken,
    Incomplete,
    Invalid,
    InvalidDefinition,
    InvalidParams,
    InvalidQuery,
    InvalidRDF,
    InvalidRecord,
    InvalidState,
    MissingNamespace,
    MissingProject,
    MissingSession,
    MissingStore,
    OmoideError,
    OverBudget,
    Refused,
    ReservedSpace,
    TooLarge,
    Unsupported,
    WrongSpaceType,
    WrongType,
)
from omoide.errors.living import (
    Dropped,
    GaveUp,
    MailboxFull,
    NotRunning,
    OwnedElsewhere,
    SignalTooLarge,
    TimedOut,
    TooManyAgents,
    Unrouted,
)

__all__ = [
    "Blocked",
    "Busy",
    "CapabilityDrift",
    "CheckpointFailed",
    "Closed",
    "Conflict",
    "Contradiction",
    "Corrupted",
    "DiskFull",
    "Diverged",
    "Dropped",
    "EmbedderChanged",
    "EmbedderFailed",
    "EndpointFailed",
    "Erased",
    "GaveUp",
    "IdTaken",
    "Incomplete",
    "Invalid",
    "InvalidDefinition",
    "InvalidParams",
    "InvalidQuery",
    "InvalidRDF",
    "InvalidRecord",
    "InvalidState",
    "KeyReused",
    "MailboxFull",
    "MissingExtra",
    "MissingNamespace",
    "MissingProject",
    "MissingSession",
    "MissingStore",
    "ModelFailed",
    "ModelMisbehaved",
    "ModelOverloaded",
    "ModelRefused",
    "ModelTimedOut",
    "ModelUnavailable",
    "ModelUnreachable",
    "MountFailed",
    "NotAllowed",
    "NotCapable",
    "NotFound",
    "NotRunning",
    "OmoideError",
    "OverBudget",
    "OwnedElsewhere",
    "QueryStopped",
    "ReadOnly",
    "Refused",
    "ReservedSpace",
    "RestoreFailed",
    "ReviewNeeded",
    "ServiceFailed",
    "SessionBusy",
    "SignalTooLarge",
    "StoreFailed",
    "StoreUnreachable",
    "TimedOut",
    "TooLarge",
    "TooManyAgents",
    "TooManyRequests",
    "TooManyRounds",
    "TurnFailed",
    "TurnPending",
    "Uncertain",
    "Unreachable",
    "Unrouted",
    "Unsupported",
    "WrongSpaceType",
    "WrongType",
    "WrongVersion",
]
