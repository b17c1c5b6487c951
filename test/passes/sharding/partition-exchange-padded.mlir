// RUN: tessera-opt %S/Inputs/experts-bounded.mlir --add-overflow-rounds --assign-shardings="mesh=expert=2" --partition-to-local=pad-exchanges --canonicalize --cse --verify-partition | FileCheck %s
// RUN: tessera compile %source/models/specs/tiny-mixtral --mode train --mesh expert=2 --set moe.dispatch=exchange --target cpu:avx2,cuda:sm_80 --to partition -o - | FileCheck %s --check-prefix=GPU --implicit-check-not=exchange_rows
// RUN: tessera compile %source/models/specs/tiny-mixtral --mode train --mesh expert=2 --set moe.dispatch=exchange --target cpu:avx2 --to partition -o - | FileCheck %s --check-prefix=CPU --implicit-check-not=all_to_all
// Experts' rows in slots of one size: of a buffer of 8 rows each of two devices sends 4.

// CHECK-NOT: exchange_rows
// CHECK: %[[COUNTS:.*]] = dist.all_gather
// The rows for each device, one behind the other.
// CHECK: %[[OWN:.*]] = graph.reshape %{{.*}} : tensor<2x4xi32> -> tensor<8xi32>
// CHECK: %[[SLOTS:.*]] = graph.embedding %{{.*}}, %[[OWN]] : (tensor<8x6xf32>, tensor<8xi32>) -> tensor<8x6xf32>
// CHECK: %[[MOVED:.*]] = dist.all_to_all %[[SLOTS]] split 0 join 0 over @mesh [#dist.axis_ref<"expert">]
// Those that a place of the buffer has; zeros where none belongs.
// CHECK: %[[HAS:.*]] = graph.and
// CHECK: %[[THERE:.*]] = graph.embedding %[[MOVED]]
// CHECK: %[[WIDE:.*]] = graph.broadcast %[[HAS]]
// CHECK: %[[ROWS:.*]] = graph.select %[[WIDE]], %[[THERE]]
// CHECK: graph.grouped_matmul %[[ROWS]]
// CHECK: dist.all_to_all
// One device may send 8 rows to one other: two rounds of 4.
// CHECK: graph.loop 1 ({{.*}}) attributes {counted} {
// CHECK-NOT: dist.all_gather
// CHECK: dist.all_to_all
// CHECK: graph.grouped_matmul
// CHECK: dist.all_to_all
// CHECK: graph.yield

// GPU: dist.all_to_all
// CPU: dist.exchange_rows
