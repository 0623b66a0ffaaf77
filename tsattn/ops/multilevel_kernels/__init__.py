"""The Triton kernels of `tsattn.ops.multilevel_triton`, and what its host prepares for them; imports without Triton.

A program owns a tile of queries and walks the tiles of keys. A first, small kernel sorts these tiles by how much of
the r components they need. The components are cut into at most four *chunks* of 16, 32, ... (the matrix unit takes no
fewer than 16 at a time); a tile whose pairs all share the same first levels and no other, and of which no pair is
masked, loads the chunks of these levels only and looks at no mask. Such tiles are walked in one branch-free loop for
every number of chunks. The few others (cut by the boundary of a block, by causality, by padding, by the end of the
sequence) compare block ids pair by pair, level by level, which is also why blocks need not be nested to be exact:
they only run slower. Backward recomputes the scores from the log-sum-exp, as FlashAttention does, once for dQ over
tiles of queries and once for dK and dV over tiles of keys; nothing is summed in an order that varies.
"""
