"""What does a session hold before anything of it is durable?

`ShortTerm` is all of it: the conversation's tail, a working context, memories that wait to be promoted, and a
log of what was used. Everything here is a value, and counts its tokens with a function that is passed in.

"""

from __future__ import annotations
