"""FlashAttention fusion: find the softmax, peel the scores, Q, K and V, classify the mask."""
