// RUN: tessera compile %source/models/specs/tiny-qwen-moe --mode train --mesh expert=2 --set moe.dispatch=exchange --target cpu:avx2 --to overlap -o - | FileCheck %s --check-prefixes=CHECK,ROWS
// RUN: tessera compile %source/models/specs/tiny-qwen-moe --mode train --mesh expert=2 --set moe.dispatch=exchange --target cpu:avx2,cuda:sm_80 --to overlap -o - | FileCheck %s --check-prefixes=CHECK,PADDED
// The shared expert, 128 wide, is computed while rows are on their way to the others, of 64.

// CHECK: func.func @eval_step
// ROWS: %[[SENT:.*]] = dist.exchange_rows {{.*}} -> !dist.pending<
// PADDED: %[[SENT:.*]] = dist.all_to_all {{.*}} -> !dist.pending<
// CHECK-NOT: dist.wait
// CHECK: graph.cluster contraction {{.*}} -> tensor<2x256x128xf32>
// CHECK-NOT: dist.wait
// CHECK: graph.cluster contraction "linear_silu_mul"{{.*}} -> tensor<2x256x128xf32>
// CHECK: dist.wait %[[SENT]]
// CHECK: graph.cluster grouped
