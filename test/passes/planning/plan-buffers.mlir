// RUN: tessera-opt %s --split-input-file --plan-buffers --verify-plan | FileCheck %s

// State that a launch may overwrite is written where it lives; the metric is
// made where the host reads it.
module {
  module @cpu attributes {tile.target = "cpu:avx2"} {
    tile.kernel @sgd(%block: index, %n: index, %w: memref<?xf32>, %g: memref<?xf32>, %new: memref<?xf32>)
        attributes {skeleton = #tile<skeleton elementwise>, dynamic_sizes = 1 : i64, summary = "sgd",
                    access = [#tile<access read>, #tile<access read>, #tile<access write>]} {
      tile.return
    }
    tile.kernel @norm(%block: index, %g: memref<8xf32>, %out: memref<f32>)
        attributes {skeleton = #tile<skeleton reduce_all>, summary = "norm",
                    access = [#tile<access read>, #tile<access write>]} {
      tile.return
    }
  }
  // CHECK: plan.state "w" : memref<8xf32> parameter at 0 decay
  // CHECK-LABEL: plan.program @train_step arena 64 io 128
  // CHECK-DAG: %[[X:.*]] = plan.buffer io at 0 "x" as input : memref<8xf32>
  // CHECK-DAG: %[[NORM:.*]] = plan.buffer io at 64 "norm" as output : memref<f32>
  // CHECK-DAG: %[[G:.*]] = plan.buffer arena at 0 lives [0, 2] : memref<8xf32>
  // CHECK-DAG: %[[W:.*]] = plan.buffer state at 0 "w" as parameter : memref<8xf32>
  // CHECK: plan.launch @sgd(%[[X]], %[[X]], %[[G]])
  // CHECK: plan.launch @norm(%[[G]], %[[NORM]])
  // CHECK: plan.launch @sgd(%[[W]], %[[G]], %[[W]])
  // CHECK-NOT: plan.copy
  func.func @train_step(%w: tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>, graph.decay},
                        %x: tensor<8xf32> {graph.input = "x"})
      -> (tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>, graph.decay},
          tensor<f32> {graph.output = "norm"}) {
    %g = tile.launch @sgd(%x, %x) blocks [1] sizes [8] reuse [0, 0] : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    %n = tile.launch @norm(%g) blocks [1] sizes [] : (tensor<8xf32>) -> tensor<f32>
    %new = tile.launch @sgd(%w, %g) blocks [1] sizes [8] reuse [0, 0] : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    return %new, %n : tensor<8xf32>, tensor<f32>
  }
}

// -----

// Who reads the old state after the update keeps it: the update goes elsewhere
// and is copied at the end.
module {
  module @cpu attributes {tile.target = "cpu:avx2"} {
    tile.kernel @double(%block: index, %w: memref<8xf32>, %new: memref<8xf32>)
        attributes {skeleton = #tile<skeleton elementwise>, summary = "double",
                    access = [#tile<access read>, #tile<access write>]} {
      tile.return
    }
  }
  // CHECK-LABEL: plan.program @train_step arena 64 io 64
  // CHECK: %[[NEW:.*]] = plan.buffer arena at 0 lives [0, 2]
  // CHECK: plan.launch @double(%[[W:.*]], %[[NEW]])
  // CHECK: plan.launch @double(%[[W]], %{{.*}})
  // CHECK: plan.copy %[[NEW]] to %[[W]]
  func.func @train_step(%w: tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>})
      -> (tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>}, tensor<8xf32> {graph.output = "old"}) {
    %new = tile.launch @double(%w) blocks [1] sizes [] reuse [0, 0] : (tensor<8xf32>) -> tensor<8xf32>
    %old = tile.launch @double(%w) blocks [1] sizes [] reuse [0, 0] : (tensor<8xf32>) -> tensor<8xf32>
    return %new, %old : tensor<8xf32>, tensor<8xf32>
  }
}

// -----

// A loop's sum stays in one buffer, zeroed once; its input advances.
module {
  module @cpu attributes {tile.target = "cpu:avx2"} {
    tile.kernel @accumulate(%block: index, %x: memref<16xf32>, %sum: memref<16xf32>)
        attributes {skeleton = #tile<skeleton elementwise>, summary = "accumulate",
                    access = [#tile<access read>, #tile<access read_write>]} {
      tile.return
    }
  }
  // CHECK-LABEL: plan.program @train_step
  // CHECK: plan.fill %[[SUM:.*]] with 0
  // CHECK: plan.loop %[[I:.*]] to 4 {
  // CHECK:   %[[PART:.*]] = plan.view %{{.*}} at 0 plus %[[I]] times 64 : memref<4x16xf32> to memref<16xf32>
  // CHECK:   plan.launch @accumulate(%[[PART]], %[[SUM]])
  // CHECK-NOT: plan.copy
  // CHECK: }
  // CHECK: plan.copy %[[SUM]] to
  func.func @train_step(%x: tensor<4x16xf32> {graph.input = "x"}) -> (tensor<16xf32> {graph.output = "sum"}) {
    %zero = graph.constant dense<0.0> : tensor<16xf32>
    %sum = graph.loop 4 (%i, %acc = %zero) : (tensor<16xf32>) {
      %part = graph.dynamic_slice %x[%i] : tensor<4x16xf32>, tensor<i32> -> tensor<16xf32>
      %next = tile.launch @accumulate(%part, %acc) blocks [1] sizes [] : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
      graph.yield %next : tensor<16xf32>
    }
    return %sum : tensor<16xf32>
  }
}

// -----

// What the sum is between two additions of an iteration is in the same buffer.
module {
  module @cpu attributes {tile.target = "cpu:avx2"} {
    tile.kernel @accumulate(%block: index, %x: memref<16xf32>, %sum: memref<16xf32>)
        attributes {skeleton = #tile<skeleton elementwise>, summary = "accumulate",
                    access = [#tile<access read>, #tile<access read_write>]} {
      tile.return
    }
    tile.kernel @add(%block: index, %sum: memref<16xf32>, %x: memref<16xf32>, %next: memref<16xf32>)
        attributes {skeleton = #tile<skeleton elementwise>, summary = "add",
                    access = [#tile<access read>, #tile<access read>, #tile<access write>]} {
      tile.return
    }
  }
  // CHECK-LABEL: plan.program @train_step arena 64
  // CHECK: plan.fill %[[SUM:.*]] with 0
  // CHECK: plan.loop
  // CHECK:   plan.launch @add(%[[SUM]], %{{.*}}, %[[SUM]])
  // CHECK:   plan.launch @accumulate(%{{.*}}, %[[SUM]])
  // CHECK-NEXT: }
  func.func @train_step(%x: tensor<16xf32> {graph.input = "x"}) -> (tensor<16xf32> {graph.output = "sum"}) {
    %zero = graph.constant dense<0.0> : tensor<16xf32>
    %sum = graph.loop 4 (%i, %acc = %zero) : (tensor<16xf32>) {
      %one = tile.launch @add(%acc, %x) blocks [1] sizes [] reuse [0, 0] : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
      %two = tile.launch @accumulate(%x, %one) blocks [1] sizes [] : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
      graph.yield %two : tensor<16xf32>
    }
    return %sum : tensor<16xf32>
  }
}

// -----

// A loop inside adds to the sum of the loop around it: in the same buffer.
module {
  module @cpu attributes {tile.target = "cpu:avx2"} {
    tile.kernel @accumulate(%block: index, %x: memref<16xf32>, %sum: memref<16xf32>)
        attributes {skeleton = #tile<skeleton elementwise>, summary = "accumulate",
                    access = [#tile<access read>, #tile<access read_write>]} {
      tile.return
    }
  }
  // CHECK-LABEL: plan.program @train_step arena 64
  // CHECK: plan.fill %[[SUM:.*]] with 0
  // CHECK: plan.loop %{{.*}} to 4 {
  // CHECK-NEXT:   plan.launch @accumulate(%{{.*}}, %[[SUM]])
  // CHECK-NEXT:   plan.loop %{{.*}} to 2 {
  // CHECK-NEXT:     plan.launch @accumulate(%{{.*}}, %[[SUM]])
  // CHECK-NEXT:   }
  // CHECK-NEXT:   plan.launch @accumulate(%{{.*}}, %[[SUM]])
  // CHECK-NEXT: }
  func.func @train_step(%x: tensor<16xf32> {graph.input = "x"}) -> (tensor<16xf32> {graph.output = "sum"}) {
    %zero = graph.constant dense<0.0> : tensor<16xf32>
    %sum = graph.loop 4 (%i, %acc = %zero) : (tensor<16xf32>) {
      %one = tile.launch @accumulate(%x, %acc) blocks [1] sizes [] : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
      %more = graph.loop 2 (%j, %inner = %one) : (tensor<16xf32>) {
        %next = tile.launch @accumulate(%x, %inner) blocks [1] sizes [] : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
        graph.yield %next : tensor<16xf32>
      }
      %two = tile.launch @accumulate(%x, %more) blocks [1] sizes [] : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
      graph.yield %two : tensor<16xf32>
    }
    return %sum : tensor<16xf32>
  }
}

// -----

// Between the read of a carried value and the write of the next one its bytes are free: of three buffers two share bytes.
module {
  module @cpu attributes {tile.target = "cpu:avx2"} {
    tile.kernel @make(%block: index, %x: memref<16xf32>, %y: memref<16xf32>)
        attributes {skeleton = #tile<skeleton elementwise>, summary = "make",
                    access = [#tile<access read>, #tile<access write>]} {
      tile.return
    }
  }
  // CHECK-LABEL: plan.program @train_step arena 128
  // CHECK: %[[KEPT:.*]] = plan.buffer arena at [[AT:[0-9]+]] lives [0, 2, 5, 7]
  // CHECK: plan.buffer arena at [[AT]] lives [3, 4]
  // CHECK: plan.launch @make(%{{.*}}, %[[KEPT]])
  // CHECK: plan.loop
  func.func @train_step(%x: tensor<16xf32> {graph.input = "x"}) -> (tensor<16xf32> {graph.output = "y"}) {
    %first = tile.launch @make(%x) blocks [1] sizes [] : (tensor<16xf32>) -> tensor<16xf32>
    %last = graph.loop 4 (%i, %kept = %first) : (tensor<16xf32>) {
      %a = tile.launch @make(%kept) blocks [1] sizes [] : (tensor<16xf32>) -> tensor<16xf32>
      %b = tile.launch @make(%a) blocks [1] sizes [] : (tensor<16xf32>) -> tensor<16xf32>
      %c = tile.launch @make(%b) blocks [1] sizes [] : (tensor<16xf32>) -> tensor<16xf32>
      %d = tile.launch @make(%c) blocks [1] sizes [] : (tensor<16xf32>) -> tensor<16xf32>
      graph.yield %d : tensor<16xf32>
    }
    return %last : tensor<16xf32>
  }
}
