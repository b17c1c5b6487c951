// RUN: tessera-opt %s | tessera-opt | FileCheck %s

// CHECK: plan.state "w" : memref<8xf32> parameter at 0 decay
plan.state "w" : memref<8xf32> parameter at 0 decay
// CHECK: plan.state "w.exp_avg" : memref<8xf32> optimizer at 64
plan.state "w.exp_avg" : memref<8xf32> optimizer at 64
// CHECK: plan.state "step" : memref<1xi64> counter at 128
plan.state "step" : memref<1xi64> counter at 128

// CHECK: plan.program @train_step arena 192 io 192 flops 4096
plan.program @train_step arena 192 io 192 flops 4096 {
  // CHECK: %[[X:.*]] = plan.buffer io at 0 "x" as input : memref<4x8xf32>
  %x = plan.buffer io at 0 "x" as input : memref<4x8xf32>
  // CHECK: %[[LOSS:.*]] = plan.buffer io at 128 "loss" as metric : memref<f32>
  %loss = plan.buffer io at 128 "loss" as metric : memref<f32>
  // CHECK: %[[W:.*]] = plan.buffer state at 0 "w" as parameter : memref<8xf32>
  %w = plan.buffer state at 0 "w" as parameter : memref<8xf32>
  // CHECK: %[[SUM:.*]] = plan.buffer arena at 0 lives [0, 5] : memref<8xf32>
  %sum = plan.buffer arena at 0 lives [0, 5] : memref<8xf32>
  // CHECK: plan.fill %[[SUM]] with 0 : memref<8xf32>
  plan.fill %sum with 0 : memref<8xf32>
  // CHECK: plan.loop %[[I:.*]] to 4 {
  plan.loop %i to 4 {
    // CHECK: %[[ROW:.*]] = plan.view %[[X]] at 0 plus %[[I]] times 32 : memref<4x8xf32> to memref<8xf32>
    %row = plan.view %x at 0 plus %i times 32 : memref<4x8xf32> to memref<8xf32>
    // Two instances: the counts of blocks and the sizes are one an instance.
    // CHECK: plan.launch @add(%[[ROW]], %[[SUM]], %[[W]], %[[SUM]]) blocks [1, 2] sizes [8, 8] : memref<8xf32>, memref<8xf32>, memref<8xf32>, memref<8xf32>
    plan.launch @add(%row, %sum, %w, %sum) blocks [1, 2] sizes [8, 8] : memref<8xf32>, memref<8xf32>, memref<8xf32>, memref<8xf32>
  }
  // CHECK: plan.copy %[[SUM]] to %[[W]] : memref<8xf32>
  plan.copy %sum to %w : memref<8xf32>
  // CHECK: %[[FIRST:.*]] = plan.view %[[SUM]] at 0 : memref<8xf32> to memref<f32>
  %first = plan.view %sum at 0 : memref<8xf32> to memref<f32>
  // CHECK: plan.copy %[[FIRST]] to %[[LOSS]] : memref<f32>
  plan.copy %first to %loss : memref<f32>
}

// -----

// CHECK: dist.mesh
// CHECK: plan.state "w" : memref<4x8xf32> parameter at 0 decay of [8, 8] cut <@mesh, [{"data"}, {}]>
// CHECK: plan.buffer io at 0 "x" as input of [16] cut <@mesh, [{"data"}]> : memref<8xf32>
// CHECK: plan.collective all_reduce %[[A:.*]] to %[[A]] by sum over ["data"] : memref<8xf32> to memref<8xf32>
// CHECK: %[[T:.*]] = plan.collective all_gather %[[A]] to %[[B:.*]] over ["data"] counts [8, 8] : memref<8xf32> to memref<16xf32> -> !plan.ticket
// CHECK: plan.wait %[[T]]
// CHECK: plan.collective reduce_scatter %[[B]] to %[[A]] by max over ["data"] counts [8, 8]
// CHECK: plan.collective permute %[[A]] to %{{.*}} over ["data"] targets [1, -1]
// CHECK: plan.collective exchange_rows %{{.*}} to %{{.*}} rows %{{.*}} : memref<2x2xi32> over ["data"] : memref<2x4xf32> to memref<4x4xf32>
dist.mesh @mesh [#dist.axis<"data" = 2>]
plan.state "w" : memref<4x8xf32> parameter at 0 decay of [8, 8] cut <@mesh, [{"data"}, {}]>
plan.program @collectives arena 320 io 128 {
  %x = plan.buffer io at 0 "x" as input of [16] cut <@mesh, [{"data"}]> : memref<8xf32>
  %a = plan.buffer arena at 0 lives [0, 5] : memref<8xf32>
  %b = plan.buffer arena at 64 lives [0, 5] : memref<16xf32>
  %y = plan.buffer io at 64 "y" as output : memref<8xf32>
  plan.copy %x to %a : memref<8xf32>
  plan.collective all_reduce %a to %a by sum over ["data"] : memref<8xf32> to memref<8xf32>
  %t = plan.collective all_gather %a to %b over ["data"] counts [8, 8] : memref<8xf32> to memref<16xf32> -> !plan.ticket
  plan.wait %t
  plan.collective reduce_scatter %b to %a by max over ["data"] counts [8, 8] : memref<16xf32> to memref<8xf32>
  plan.collective permute %a to %y over ["data"] targets [1, -1] : memref<8xf32> to memref<8xf32>
  %r = plan.buffer arena at 128 lives [5, 9] : memref<2x4xf32>
  %s = plan.buffer arena at 192 lives [5, 9] : memref<4x4xf32>
  %n = plan.buffer arena at 256 lives [5, 9] : memref<2x2xi32>
  plan.collective exchange_rows %r to %s rows %n : memref<2x2xi32> over ["data"] : memref<2x4xf32> to memref<4x4xf32>
}
