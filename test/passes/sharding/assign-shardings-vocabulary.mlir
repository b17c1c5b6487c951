// RUN: tessera-opt %S/Inputs/model.mlir --assign-shardings="mesh=tensor=2" --verify-shardings | FileCheck %s
// RUN: tessera-opt %S/Inputs/model.mlir --assign-shardings="mesh=tensor=2" --partition-to-local --canonicalize --cse | FileCheck %s --check-prefix=LOCAL
// A device has the logits of its words: of 50, 25. No logits travel, only a
// maximum, a sum and the target's logit for each token (Shoeybi et al. 2019).

// CHECK-LABEL: func.func @eval_step
// CHECK-SAME: %arg0: tensor<50x8xf32> {dist.sharding = #dist.sharding<@mesh, [{"tensor"}, {}]>
// CHECK: graph.embedding %arg0, %{{.*}} {dist.shardings = [#dist.sharding<@mesh, [{}, {}, {}], partial sum {"tensor"}>]}
// CHECK: %[[LOSS:.*]] = graph.linear_cross_entropy %{{.*}}, %arg0, %{{.*}} {dist.shardings = [#dist.sharding<@mesh, [], partial sum {"tensor"}>]}
// CHECK-NEXT: dist.reshard %[[LOSS]] to <@mesh, []>

// LOCAL-LABEL: func.func @eval_step
// LOCAL-SAME: %arg0: tensor<25x8xf32>
// LOCAL-SAME: graph.input = "mesh.offsets"
// LOCAL: %[[LOGITS:.*]] = graph.einsum "tk,vk->tv" %{{.*}}, %arg0 : (tensor<24x8xf32>, tensor<25x8xf32>) -> tensor<24x25xf32>
// LOCAL: %[[MOST:.*]] = graph.reduce %[[LOGITS]] max dims [1]
// LOCAL: %[[ALLMOST:.*]] = dist.all_reduce max %[[MOST]] over @mesh [#dist.axis_ref<"tensor">] : tensor<24xf32>
// LOCAL: graph.exp
// LOCAL: dist.all_reduce sum %{{.*}} over @mesh [#dist.axis_ref<"tensor">] : tensor<24xf32>
// The target's logit, where it is one of this device's words; zero elsewhere.
// LOCAL: graph.select %{{.*}}, %[[LOGITS]], %{{.*}} : tensor<24x25xi1>, tensor<24x25xf32>
// LOCAL-NOT: tensor<24x50xf32>
// LOCAL: dist.all_reduce sum %{{.*}} over @mesh [#dist.axis_ref<"tensor">] : tensor<f32>
