"""One conversation with the catalog: the operations, the policy that allows them, and the tools a model is given."""
