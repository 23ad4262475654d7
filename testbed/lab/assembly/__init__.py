"""A lab as a whole: where what the core has and what features add meet, in the topology file and in the plan.

The core knows no feature, and no feature knows another one. A topology file has keys of all, and a plan operations of
all, some of which two features decide together: these modules know them, and `testbed.lab` names `meeting` to the core,
which asks there for a file's lab (`testbed.lab.core.schema.load`) and for its plan (`testbed.lab.core.plan.lab`).
"""
