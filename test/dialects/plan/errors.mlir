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
