// RUN: tessera-opt %s --split-input-file --verify-diagnostics

// expected-error @+1 {{a tile has at least one row and one column}}
module attributes {plan = #tile.contraction_plan<vector, lhs = memory, rhs = memory, tile = [0, 64]>} {}

// -----

// expected-error @+1 {{a tile has at least one query and one key}}
module attributes {plan = #tile.attention_plan<vector, tile = [64, 0]>} {}

// -----

// expected-error @+1 {{split must be a number of keys, or 0 for all, got -64}}
module attributes {plan = #tile.attention_plan<tensor_core, tile = [16, 64], split = -64>} {}

// -----

// expected-error @+1 {{split and ping_pong belong to different kernels}}
module attributes {plan = #tile.attention_plan<warp_specialized, tile = [128, 128], split = 256, ping_pong = true>} {}

// -----

// expected-error @+1 {{a tile has at least one query and one key}}
module attributes {plan = #tile.attention_grad_plan<tensor_core, dkv = [64, 64], dq = [0, 64]>} {}
