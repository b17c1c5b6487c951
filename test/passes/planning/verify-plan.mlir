// RUN: tessera-opt %s --split-input-file --verify-plan --verify-diagnostics

module {
  plan.program @overlap arena 128 io 0 {
    // expected-error@+1 {{shares bytes with a buffer that is live at the same time}}
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
    // expected-error@+1 {{is step 1 but accesses a buffer that is live from 0 to 0}}
    plan.fill %a with 0 : memref<16xf32>
  }
}

// -----

module {
  plan.program @no_lives arena 64 io 0 {
    // expected-error@+1 {{in the arena lacks `lives`}}
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
  // expected-error@+1 {{still has tensors after planning}}
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

// -----

module {
  dist.mesh @mesh [#dist.axis<"data" = 2>]
  plan.program @axis arena 64 io 0 {
    %a = plan.buffer arena at 0 lives [0, 0] : memref<16xf32>
    // expected-error@+1 {{runs over "tensor", which is not an axis of the module's mesh}}
    plan.collective all_reduce %a to %a by sum over ["tensor"] : memref<16xf32> to memref<16xf32>
  }
}

// -----

module {
  plan.program @alone arena 64 io 0 {
    %a = plan.buffer arena at 0 lives [0, 0] : memref<16xf32>
    // expected-error@+1 {{runs over "data", which is not an axis of the module's mesh}}
    plan.collective all_reduce %a to %a by sum over ["data"] : memref<16xf32> to memref<16xf32>
  }
}

// -----

// A wait touches what its collective does.
module {
  dist.mesh @mesh [#dist.axis<"data" = 2>]
  plan.program @short arena 64 io 0 {
    %a = plan.buffer arena at 0 lives [0, 0] : memref<16xf32>
    %t = plan.collective all_reduce %a to %a by sum over ["data"] : memref<16xf32> to memref<16xf32> -> !plan.ticket
    // expected-error@+1 {{is step 1 but accesses a buffer that is live from 0 to 0}}
    plan.wait %t
  }
}

// -----

module {
  dist.mesh @mesh [#dist.axis<"data" = 2>]
  plan.program @reads_destination arena 256 io 0 {
    %a = plan.buffer arena at 0 lives [0, 9] : memref<16xf32>
    %b = plan.buffer arena at 64 lives [0, 9] : memref<32xf32>
    %c = plan.buffer arena at 192 lives [0, 9] : memref<16xf32>
    %v = plan.view %b at 64 : memref<32xf32> to memref<16xf32>
    // expected-note@+1 {{the collective}}
    %t = plan.collective all_gather %a to %b over ["data"] counts [16, 16] : memref<16xf32> to memref<32xf32> -> !plan.ticket
    plan.copy %a to %c : memref<16xf32>
    // expected-error@+1 {{accesses bytes of a collective that was started and not yet waited for}}
    plan.copy %v to %c : memref<16xf32>
    plan.wait %t
  }
}

// -----

// Also in a loop; a kernel may read the source, but not write it.
module {
  module @cpu attributes {tile.target = "cpu:avx2"} {
    tile.kernel @double(%block: index, %w: memref<16xf32>, %new: memref<16xf32>)
        attributes {skeleton = #tile<skeleton elementwise>, summary = "double",
                    access = [#tile<access read>, #tile<access write>]} {
      tile.return
    }
  }
  dist.mesh @mesh [#dist.axis<"data" = 2>]
  plan.program @writes_source arena 256 io 0 {
    %a = plan.buffer arena at 0 lives [0, 9] : memref<16xf32>
    %b = plan.buffer arena at 64 lives [0, 9] : memref<32xf32>
    %c = plan.buffer arena at 192 lives [0, 9] : memref<16xf32>
    // expected-note@+1 {{the collective}}
    %t = plan.collective all_gather %a to %b over ["data"] counts [16, 16] : memref<16xf32> to memref<32xf32> -> !plan.ticket
    plan.loop %i to 2 {
      plan.launch @double(%a, %c) blocks [1] sizes [] : memref<16xf32>, memref<16xf32>
      // expected-error@+1 {{accesses bytes of a collective that was started and not yet waited for}}
      plan.launch @double(%c, %a) blocks [1] sizes [] : memref<16xf32>, memref<16xf32>
    }
    plan.wait %t
  }
}

// -----

// Bytes of a gap belong to another buffer; what is live again must be overwritten.
module {
  plan.program @gap arena 64 io 0 {
    %a = plan.buffer arena at 0 lives [0, 0, 2, 2] : memref<16xf32>
    %b = plan.buffer arena at 0 lives [1, 1] : memref<16xf32>
    plan.fill %a with 0 : memref<16xf32>
    plan.fill %b with 0 : memref<16xf32>
    plan.fill %a with 0 : memref<16xf32>
  }
}

// -----

module {
  plan.program @kept arena 128 io 0 {
    %a = plan.buffer arena at 0 lives [0, 0, 2, 2] : memref<16xf32>
    %b = plan.buffer arena at 64 lives [1, 2] : memref<16xf32>
    plan.fill %a with 0 : memref<16xf32>
    plan.fill %b with 0 : memref<16xf32>
    // expected-error@+1 {{is step 2, from which a buffer is live again, and does not overwrite it}}
    plan.copy %a to %b : memref<16xf32>
  }
}

// -----

module {
  plan.program @shared arena 64 io 0 {
    // expected-error@+1 {{shares bytes with a buffer that is live at the same time}}
    %a = plan.buffer arena at 0 lives [0, 0, 2, 2] : memref<16xf32>
    // expected-note@+1 {{the other buffer}}
    %b = plan.buffer arena at 0 lives [1, 2] : memref<16xf32>
    plan.fill %a with 0 : memref<16xf32>
    plan.fill %b with 0 : memref<16xf32>
    plan.fill %a with 0 : memref<16xf32>
  }
}

// -----

module {
  plan.program @late_overwrite arena 128 io 0 {
    %a = plan.buffer arena at 0 lives [0, 0, 2, 3] : memref<16xf32>
    %b = plan.buffer arena at 64 lives [1, 3] : memref<16xf32>
    plan.fill %a with 0 : memref<16xf32>
    plan.fill %b with 0 : memref<16xf32>
    plan.fill %b with 0 : memref<16xf32>
    // expected-error@+1 {{is step 3, from which a buffer is live again, and does not overwrite it}}
    plan.copy %a to %b : memref<16xf32>
  }
}

// -----

module {
  plan.program @in_a_loop arena 128 io 0 {
    %a = plan.buffer arena at 0 lives [0, 2, 5, 5] : memref<16xf32>
    %b = plan.buffer arena at 0 lives [3, 3] : memref<16xf32>
    %c = plan.buffer arena at 64 lives [2, 2] : memref<16xf32>
    plan.fill %a with 0 : memref<16xf32>
    plan.loop %i to 2 {
      plan.copy %a to %c : memref<16xf32>
      plan.fill %b with 0 : memref<16xf32>
    }
    // expected-error@+1 {{is step 5, from which a buffer is live again whose live range before ends inside of a loop}}
    plan.fill %a with 0 : memref<16xf32>
  }
}

// -----

module {
  module @cpu attributes {tile.target = "cpu:avx2"} {
    tile.kernel @f(%block: index, %x: memref<4xf32>)
        attributes {skeleton = #tile<skeleton elementwise>, summary = "f", access = [#tile<access write>]} {
      tile.return
    }
  }
  plan.program @misaligned arena 64 io 0 {
    %a = plan.buffer arena at 0 lives [0, 0] : memref<16xf32>
    %b = plan.view %a at 16 : memref<16xf32> to memref<4xf32>
    // expected-error@+1 {{argument 0 begins at byte 16 of its buffer, which is not a multiple of 64}}
    plan.launch @f(%b) blocks [1] sizes [] : memref<4xf32>
  }
}

// -----

// No bytes, but in the middle of those of another; not so at its beginning.
module {
  plan.program @empty arena 128 io 0 {
    // expected-error@+1 {{shares bytes with a buffer that is live at the same time}}
    %a = plan.buffer arena at 0 lives [0, 1] : memref<32xf32>
    %b = plan.buffer arena at 0 lives [0, 1] : memref<0xf32>
    // expected-note@+1 {{the other buffer}}
    %c = plan.buffer arena at 64 lives [1, 1] : memref<0xf32>
    plan.copy %b to %b : memref<0xf32>
    plan.fill %a with 0 : memref<32xf32>
    plan.copy %c to %c : memref<0xf32>
  }
}
