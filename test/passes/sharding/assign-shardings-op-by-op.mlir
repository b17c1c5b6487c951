// RUN: tessera-opt %S/Inputs/multi-query.mlir --assign-shardings="mesh=tensor=2 solver=false" --verify-shardings | FileCheck %s --check-prefix=COLORS
// RUN: tessera-opt %S/Inputs/multi-query.mlir --assign-shardings="mesh=tensor=2" --verify-shardings | FileCheck %s
// RUN: tessera-opt %S/Inputs/multi-query.mlir --assign-shardings="mesh=tensor=2" --partition-to-local --canonicalize --cse | FileCheck %s --check-prefix=LOCAL
// RUN: tessera-opt %S/Inputs/multi-query.mlir --assign-shardings="mesh=tensor=2 explain" -o /dev/null 2>&1 | FileCheck %s --check-prefix=EXPLAIN
// RUN: tessera-opt %S/Inputs/multi-query.mlir --assign-shardings="mesh=data=2 explain" -o /dev/null 2>&1 | FileCheck %s --check-prefix=DATA
// All query heads have one key head, so that no color of heads can be cut. By
// colors attention is whole: everything is gathered for it, and every device
// does all of it.

// COLORS-LABEL: func.func private @layer
// COLORS: dist.reshard %{{.*}} to <@mesh, [{}, {}, {}, {}]> : tensor<4x16384x4x64xf32>
// COLORS: graph.attention {{.*}} {causal} :

// By itself, it is cut along sequences, which are no color of `tensor`: shares
// are exchanged before it. Weights are cut as ever.
// CHECK-LABEL: func.func private @layer
// CHECK-SAME: %arg1: tensor<256x256xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {4, 64:"tensor"}]>}
// CHECK: dist.reshard %{{.*}} to <@mesh, [{"tensor"}, {}, {}, {}]> : tensor<4x16384x4x64xf32>
// CHECK: graph.attention {{.*}}#dist.sharding<@mesh, [{"tensor"}, {}, {}, {}]>
// CHECK-NEXT: graph.reshape
// CHECK-NEXT: dist.reshard

// LOCAL-LABEL: func.func private @layer
// LOCAL: dist.all_to_all
// LOCAL: graph.attention {{.*}} tensor<2x16384x4x64xf32>
// LOCAL-NOT: dist.permute

// EXPLAIN: remark: shardings: {{[0-9]+}} strategies by sharding groups; the best has an estimated step of {{[0-9.]+}} us; op by op {{[0-9.]+}} us, with {{[0-9]+}} of {{[0-9]+}} classes of ops and values sharded differently (optimal among its choices)
// DATA: remark: shardings: {{[0-9]+}} strategies by sharding groups; no search op by op
