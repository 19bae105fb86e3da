# SPDX-License-Identifier: Apache-2.0
"""Exit statuses, which scripts rely on."""

#: Everything is as declared, or was done.
DONE = 0

#: Some nodes failed, or a service did not answer.
FAILED = 1

#: The command line or the cluster file is wrong; nothing was changed.
INVALID = 2

#: Nodes have instances, or the user has not agreed; nothing was changed.
REFUSED = 3

HELP = f"""exit status:
  {DONE}    everything is as declared, or was done
  {FAILED}    some nodes failed, or a service did not answer
  {INVALID}    the command line or the cluster file is wrong; nothing was
       changed
  {REFUSED}    nodes have instances, or the deletion was not confirmed; nothing
       was changed
  130  interrupted; the next run continues
"""
