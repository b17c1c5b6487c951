// RUN: tessera-opt %S/Inputs/sequence.mlir --assign-shardings="mesh=tensor=2" --verify-shardings | FileCheck %s
// RUN: tessera-opt %S/Inputs/sequence.mlir --assign-shardings="mesh=tensor=2" --partition-to-local --canonicalize --cse | FileCheck %s --check-prefix=LOCAL
// Between products, where nothing of the inner width is left, a device has a
// part of the tokens (Korthikanti et al. 2022): the sum behind the second
// product becomes a scatter and a gather, which move as much.

// CHECK-LABEL: func.func private @layer
// CHECK-SAME: %arg0: tensor<4x4096x1024xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}, {}]>}
// CHECK-SAME: %arg2: tensor<1024x4096xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}]>}
// CHECK: %[[N:.*]] = graph.rms_norm %arg0, %arg1 {{.*}}[{}, {"tensor"}, {}]
// CHECK-NEXT: %[[ALL:.*]] = dist.reshard %[[N]] to <@mesh, [{}, {}, {}]>
// CHECK-NEXT: graph.einsum "btk,kn->btn" %[[ALL]], %arg2 {dist.shardings = [#dist.sharding<@mesh, [{}, {}, {"tensor"}]>]}
// CHECK: %[[O:.*]] = graph.einsum "btn,nk->btk" %{{.*}}, %arg3 {dist.shardings = [#dist.sharding<@mesh, [{}, {}, {}], partial sum {"tensor"}>]}
// CHECK-NEXT: %[[OWN:.*]] = dist.reshard %[[O]] to <@mesh, [{}, {"tensor"}, {}]>
// CHECK-NEXT: graph.add %arg0, %[[OWN]]

// LOCAL-LABEL: func.func private @layer(%arg0: tensor<4x2048x1024xf32>
// LOCAL: graph.rms_norm {{.*}} : tensor<4x2048x1024xf32>
// LOCAL: dist.all_gather {{.*}} dim 0 over @mesh [#dist.axis_ref<"tensor">]
// LOCAL: graph.einsum "btn,nk->btk" {{.*}} -> tensor<4x4096x1024xf32>
// LOCAL-NOT: dist.all_reduce
// LOCAL: dist.reduce_scatter sum {{.*}} dim 0 over @mesh [#dist.axis_ref<"tensor">]
// LOCAL: graph.add %arg0, {{.*}} : tensor<4x2048x1024xf32>
