"""The links of a scale-up domain: lossless by credits, retried by the link itself.

Between a GPU and a switch of its domain a load or a store may neither be dropped nor wait for an end-to-end timer.
Two mechanisms of Ultra Ethernet's link layer see to that. Credit-based flow control (CBFC, `credits`): a frame is
sent when the receiver is known to have room for it. Link layer retry (LLR, `retry`): frames are numbered and kept
until they are acknowledged, and sent again from the first one that is missing. Both are C (`native/`), for what must
handle each frame in a microsecond; `credits` and `retry` tell their rules, and have their settings. `ctlos`, `headers`
and `frames` are what crosses a link, for those who look at captures.

Source: the chapter on the link layer (5.1 LLR, 5.2 CBFC, 6.2 CtlOS) of the Ultra Ethernet Specification 1.0, as far
as it is public: opencomputeproject/SAI, doc/LLR and doc/CBFC (SAI 1.18), and the open-traffic-generator models.
"""
