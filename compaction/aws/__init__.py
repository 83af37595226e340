"""What `eventlog.compaction.lambda_handler` is made of, and how it gets to AWS.

Imports eventlog and compaction's other rooms; nothing that a Lambda function lacks. Reading order:
`events`, `settings`, `work`, `json_lines`; `bundle` builds the code, `template.yaml` the stack.
"""
