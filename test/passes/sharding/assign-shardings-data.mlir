// RUN: tessera-opt %S/Inputs/mlp.mlir --assign-shardings="mesh=data=2" --verify-shardings | FileCheck %s
// RUN: tessera-opt %S/Inputs/mlp.mlir --assign-shardings="mesh=data=2" --partition-to-local --canonicalize --cse | FileCheck %s --check-prefix=LOCAL
// RUN: tessera-opt %S/Inputs/update.mlir --assign-shardings="mesh=data=2 zero=0" --partition-to-local --canonicalize --cse | FileCheck %s --check-prefix=STEP
// Every device has other sequences and the same weights: nothing moves inside
// of layers.

// CHECK-LABEL: func.func @eval_step
// CHECK-SAME: %arg0: tensor<2x8x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {}, {}]>, graph.input = "x"}
// CHECK-SAME: %arg3: tensor<6x64xf32> {graph.role
// CHECK-LABEL: func.func private @layer
// CHECK-NOT: dist.reshard
// CHECK: graph.einsum "btn,nk->btk" %{{.*}}, %arg3 {dist.shardings = [#dist.sharding<@mesh, [{"data"}, {}, {}]>]}
// CHECK-NOT: dist.reshard
// CHECK: return

// LOCAL-LABEL: func.func private @layer(%arg0: tensor<1x8x6xf32>, %arg1: tensor<6xf32>, %arg2: tensor<6x64xf32>, %arg3: tensor<64x6xf32>) -> tensor<1x8x6xf32>
// LOCAL-NOT: dist.
// LOCAL: return

// In a step, gradients are summed once over all sequences.
// STEP-LABEL: func.func @train_step
// STEP: %[[G:.*]] = graph.einsum "btk,btn->kn" %{{.*}} : (tensor<2x5x6xf32>, tensor<2x5x10xf32>) -> tensor<6x10xf32>
// STEP-NEXT: %[[SUM:.*]] = dist.all_reduce sum %[[G]] over @mesh [#dist.axis_ref<"data">]
// STEP-NEXT: call @update(%arg0, %[[SUM]], %arg1,
// STEP-NOT: dist.
// STEP: return
