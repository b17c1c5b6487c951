// RUN: tessera-opt %s --split-input-file --verify-plan --verify-diagnostics

module {
  plan.program @overlap arena 128 io 0 {
    // expected-error@+1 {{shares bytes with a buffer that lives at the same time}}
    %a = plan.buffer arena at 0 lives [0, 1] : memref<32xf32>
    // expected-note@+1 {{the other buffer}}
    %b = plan.buffer arena at 64 lives [1, 1] : memref<16xf32>
    plan.fill %a with 0 : memref<32xf32>
    plan.fill %b with 0 : memref<16xf32>
  }
}

// -----

module {
  plan.program @late arena 64 io 0 {
    %a = plan.buffer arena at 0 lives [0, 0] : memref<16xf32>
    plan.fill %a with 0 : memref<16xf32>
    // expected-error@+1 {{is step 1 but touches a buffer that lives from 0 to 0}}
    plan.fill %a with 0 : memref<16xf32>
  }
}

// -----

module {
  plan.program @no_lives arena 64 io 0 {
    // expected-error@+1 {{in the arena has no `lives`}}
    %a = plan.buffer arena at 0 : memref<16xf32>
    plan.fill %a with 0 : memref<16xf32>
  }
}

// -----

module {
  plan.program @outside arena 64 io 0 {
    // expected-error@+1 {{ends at byte 128 of a region of 64}}
    %a = plan.buffer arena at 64 lives [0, 0] : memref<16xf32>
    plan.fill %a with 0 : memref<16xf32>
  }
}

// -----

module {
  plan.state "w" : memref<16xf32> parameter at 64
  plan.program @state arena 0 io 0 {
    // expected-error@+1 {{does not agree with the plan.state "w"}}
    %a = plan.buffer state at 0 "w" as parameter : memref<16xf32>
    plan.fill %a with 0 : memref<16xf32>
  }
}

// -----

module {
  // expected-error@+1 {{is still on tensors after planning}}
  func.func @left() {
    return
  }
}

// -----

module {
  module @cpu attributes {tile.target = "cpu:avx2"} {
    tile.kernel @f(%b: index, %x: memref<16xf32>) attributes {access = [#tile<access write>], dynamic_sizes = 0 : i64, skeleton = #tile<skeleton elementwise>, summary = "", tile.blocks = 2 : i64} {
      tile.return
    }
  }
  plan.program @blocks arena 64 io 0 {
    %a = plan.buffer arena at 0 lives [0, 0] : memref<16xf32>
    // expected-error@+1 {{kernel @f is made for 2 blocks, got 3}}
    plan.launch @f(%a) blocks [3] sizes [] : memref<16xf32>
  }
}
