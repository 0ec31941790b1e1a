"""Changes of kind: groups of the graph to Scops, Scops to loop nests. The last place where isl is seen."""
