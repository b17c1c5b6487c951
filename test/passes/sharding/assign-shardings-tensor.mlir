// RUN: tessera-opt %S/Inputs/mlp.mlir --assign-shardings="mesh=tensor=2" --verify-shardings | FileCheck %s --check-prefix=TENSOR
// RUN: tessera-opt %S/Inputs/mlp.mlir --assign-shardings="mesh=tensor=2" --partition-to-local --canonicalize --cse | FileCheck %s --check-prefix=LOCAL
// RUN: tessera-opt %S/Inputs/mlp.mlir --assign-shardings="mesh=context=2" --verify-shardings | FileCheck %s --check-prefix=CONTEXT
// The search finds that the inner width is best cut (Shoeybi et al. 2019): one
// sum a layer, behind the second product.

// TENSOR-LABEL: func.func private @layer
// TENSOR-SAME: %arg2: tensor<6x64xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}]>}
// TENSOR-SAME: %arg3: tensor<64x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"tensor"}, {}]>}
// TENSOR: %[[H:.*]] = graph.einsum "btk,kn->btn" %{{.*}}, %arg2 {dist.shardings = [#dist.sharding<@mesh, [{}, {}, {"tensor"}]>]}
// TENSOR-NEXT: %[[A:.*]] = graph.silu %[[H]] {dist.shardings = [#dist.sharding<@mesh, [{}, {}, {"tensor"}]>]}
// TENSOR-NEXT: %[[O:.*]] = graph.einsum "btn,nk->btk" %[[A]], %arg3 {dist.shardings = [#dist.sharding<@mesh, [{}, {}, {}], partial sum {"tensor"}>]}
// TENSOR-NEXT: dist.reshard %[[O]] to <@mesh, [{}, {}, {}]>

// LOCAL-LABEL: func.func private @layer
// LOCAL-SAME: %arg2: tensor<6x32xf32>, %arg3: tensor<32x6xf32>
// LOCAL: %[[O:.*]] = graph.einsum "btn,nk->btk" %{{.*}}, %arg3 : (tensor<2x8x32xf32>, tensor<32x6xf32>) -> tensor<2x8x6xf32>
// LOCAL-NEXT: dist.all_reduce sum %[[O]] over @mesh [#dist.axis_ref<"tensor">]

// Every second token, through the whole layer:
// CONTEXT-LABEL: func.func private @layer
// CONTEXT-NOT: dist.reshard
// CONTEXT: graph.einsum "btk,kn->btn" %{{.*}}, %arg2 {dist.shardings = [#dist.sharding<@mesh, [{}, {4, 2:"context"}, {}]>]}
// CONTEXT-NOT: dist.reshard
// CONTEXT: graph.einsum "btn,nk->btk" %{{.*}}, %arg3 {dist.shardings = [#dist.sharding<@mesh, [{}, {4, 2:"context"}, {}]>]}
