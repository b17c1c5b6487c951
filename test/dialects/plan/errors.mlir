// RUN: tessera-opt %s --split-input-file --verify-diagnostics

plan.program @alignment arena 128 io 0 {
  // expected-error@+1 {{offset 4 is no multiple of 64}}
  %a = plan.buffer arena at 4 lives [0, 0] : memref<16xf32>
}

// -----

plan.program @nameless arena 0 io 64 {
  // expected-error@+1 {{a buffer in io has a name}}
  %a = plan.buffer io at 0 : memref<16xf32>
}

// -----

plan.program @lives arena 64 io 0 {
  // expected-error@+1 {{`lives` is a first and a last step}}
  %a = plan.buffer arena at 0 lives [2, 1] : memref<16xf32>
}

// -----

plan.program @view arena 64 io 0 {
  %a = plan.buffer arena at 0 lives [0, 0] : memref<16xf32>
  // expected-error@+1 {{reaches byte 68 of a buffer of 64}}
  %b = plan.view %a at 4 : memref<16xf32> to memref<16xf32>
}

// -----

plan.program @last_turn arena 64 io 0 {
  %a = plan.buffer arena at 0 lives [0, 2] : memref<16xf32>
  plan.loop %i to 3 {
    // expected-error@+1 {{reaches byte 96 of a buffer of 64}}
    %b = plan.view %a at 0 plus %i times 32 : memref<16xf32> to memref<8xf32>
  }
}

// -----

plan.program @instances arena 64 io 0 {
  %a = plan.buffer arena at 0 lives [0, 0] : memref<16xf32>
  // expected-error@+1 {{buffers and sizes must divide evenly among 2 instances}}
  plan.launch @k(%a) blocks [1, 1] sizes [] : memref<16xf32>
}

// -----

plan.program @no_instances arena 64 io 0 {
  %a = plan.buffer arena at 0 lives [0, 0] : memref<16xf32>
  // expected-error@+1 {{buffers and sizes must divide evenly among 0 instances}}
  plan.launch @k(%a) blocks [] sizes [] : memref<16xf32>
}

// -----

plan.program @odd_sizes arena 64 io 0 {
  %a = plan.buffer arena at 0 lives [0, 0] : memref<16xf32>
  // expected-error@+1 {{buffers and sizes must divide evenly among 2 instances}}
  plan.launch @k(%a, %a) blocks [1, 1] sizes [4] : memref<16xf32>, memref<16xf32>
}

// -----

plan.program @one_life arena 64 io 0 {
  // expected-error@+1 {{`lives` is a first and a last step}}
  %a = plan.buffer arena at 0 lives [2] : memref<16xf32>
}

// -----

plan.program @no_induction arena 64 io 0 {
  // expected-error@+1 {{body takes one index, the induction value}}
  "plan.loop"() <{trip = 2 : i64}> ({
  ^bb0:
  }) : () -> ()
}

// -----

plan.program @float_induction arena 64 io 0 {
  // expected-error@+1 {{body takes one index, the induction value}}
  "plan.loop"() <{trip = 2 : i64}> ({
  ^bb0(%i: f32):
  }) : () -> ()
}

// -----

plan.program @foreign_induction arena 64 io 0 {
  %a = plan.buffer arena at 0 lives [0, 0] : memref<16xf32>
  %i = arith.constant 0 : index
  // expected-error@+1 {{advances with the induction value of a plan.loop only}}
  %b = plan.view %a at 0 plus %i times 4 : memref<16xf32> to memref<8xf32>
}

// -----

plan.program @no_stride arena 64 io 0 {
  %a = plan.buffer arena at 0 lives [0, 0] : memref<16xf32>
  plan.loop %i to 3 {
    // expected-error@+1 {{needs a stride that is not negative}}
    %b = "plan.view"(%a, %i) <{offset = 0 : i64}> : (memref<16xf32>, index) -> memref<8xf32>
  }
}

// -----

plan.program @backwards arena 64 io 0 {
  %a = plan.buffer arena at 0 lives [0, 0] : memref<16xf32>
  plan.loop %i to 3 {
    // expected-error@+1 {{needs a stride that is not negative}}
    %b = plan.view %a at 32 plus %i times -4 : memref<16xf32> to memref<8xf32>
  }
}
