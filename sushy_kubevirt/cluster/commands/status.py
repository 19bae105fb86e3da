# SPDX-License-Identifier: Apache-2.0
"""Exit statuses, which scripts rely on."""

DONE, FAILED, INVALID, REFUSED = range(4)

HELP = f"""exit status:
  {DONE}    everything is as declared, or was done
  {FAILED}    some nodes failed, or a service did not answer
  {INVALID}    the command line or the cluster file is wrong; nothing was
       changed
  {REFUSED}    nodes have instances, or the deletion was not confirmed; nothing
       was changed
  130  interrupted; the next run continues
"""
