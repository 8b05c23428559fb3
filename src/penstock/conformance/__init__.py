"""The conformance suite: vectors of the five protocols, checked with our codecs or played to any server.

The vectors were written from the protocols' documents and lie outside of the code, in `conformance/vectors`, where its
README says how they look. Nothing here knows pytest.
"""
