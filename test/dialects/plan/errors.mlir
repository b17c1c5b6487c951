// RUN: tessera-opt %s --split-input-file --verify-diagnostics

plan.program @alignment arena 128 io 0 {
  // expected-error@+1 {{offset 4 is not a multiple of 64}}
  %a = plan.buffer arena at 4 lives [0, 0] : memref<16xf32>
}

// -----

plan.program @nameless arena 0 io 64 {
  // expected-error@+1 {{a buffer in io must have a name}}
  %a = plan.buffer io at 0 : memref<16xf32>
}

// -----

plan.program @lives arena 64 io 0 {
  // expected-error@+1 {{`lives` must be first and last steps of ranges}}
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
  // expected-error@+1 {{`lives` must be first and last steps of ranges}}
  %a = plan.buffer arena at 0 lives [2] : memref<16xf32>
}

// -----

plan.program @no_induction arena 64 io 0 {
  // expected-error@+1 {{body must have one index argument, the induction variable}}
  "plan.loop"() <{trip = 2 : i64}> ({
  ^bb0:
  }) : () -> ()
}

// -----

plan.program @float_induction arena 64 io 0 {
  // expected-error@+1 {{body must have one index argument, the induction variable}}
  "plan.loop"() <{trip = 2 : i64}> ({
  ^bb0(%i: f32):
  }) : () -> ()
}

// -----

plan.program @foreign_induction arena 64 io 0 {
  %a = plan.buffer arena at 0 lives [0, 0] : memref<16xf32>
  %i = arith.constant 0 : index
  // expected-error@+1 {{may only advance with the induction variable of a plan.loop}}
  %b = plan.view %a at 0 plus %i times 4 : memref<16xf32> to memref<8xf32>
}

// -----

plan.program @no_stride arena 64 io 0 {
  %a = plan.buffer arena at 0 lives [0, 0] : memref<16xf32>
  plan.loop %i to 3 {
    // expected-error@+1 {{requires a stride that is not negative}}
    %b = "plan.view"(%a, %i) <{offset = 0 : i64}> : (memref<16xf32>, index) -> memref<8xf32>
  }
}

// -----

plan.program @backwards arena 64 io 0 {
  %a = plan.buffer arena at 0 lives [0, 0] : memref<16xf32>
  plan.loop %i to 3 {
    // expected-error@+1 {{requires a stride that is not negative}}
    %b = plan.view %a at 32 plus %i times -4 : memref<16xf32> to memref<8xf32>
  }
}

// -----

plan.program @element_types arena 192 io 0 {
  %a = plan.buffer arena at 0 lives [0, 9] : memref<8xf32>
  %b = plan.buffer arena at 64 lives [0, 9] : memref<16xf32>
  %c = plan.buffer arena at 0 lives [0, 9] : memref<8xi32>
  // expected-error@+1 {{sends 'memref<8xf32>' and receives 'memref<8xi32>'}}
  plan.collective permute %a to %c over ["x"] targets [0] : memref<8xf32> to memref<8xi32>
}

// -----

plan.program @no_reduction arena 192 io 0 {
  %a = plan.buffer arena at 0 lives [0, 9] : memref<8xf32>
  %b = plan.buffer arena at 64 lives [0, 9] : memref<16xf32>
  // expected-error@+1 {{lacks the reduction (`by`)}}
  plan.collective all_reduce %a to %a over ["x"] : memref<8xf32> to memref<8xf32>
}

// -----

plan.program @reduction arena 192 io 0 {
  %a = plan.buffer arena at 0 lives [0, 9] : memref<8xf32>
  %b = plan.buffer arena at 64 lives [0, 9] : memref<16xf32>
  // expected-error@+1 {{has a reduction, but does not reduce}}
  plan.collective all_gather %a to %b by sum over ["x"] counts [8, 8] : memref<8xf32> to memref<16xf32>
}

// -----

plan.program @no_counts arena 192 io 0 {
  %a = plan.buffer arena at 0 lives [0, 9] : memref<8xf32>
  %b = plan.buffer arena at 64 lives [0, 9] : memref<16xf32>
  // expected-error@+1 {{has counts or targets that it does not use}}
  plan.collective all_gather %a to %b over ["x"] : memref<8xf32> to memref<16xf32>
}

// -----

plan.program @apart arena 192 io 0 {
  %a = plan.buffer arena at 0 lives [0, 9] : memref<8xf32>
  %b = plan.buffer arena at 64 lives [0, 9] : memref<16xf32>
  // expected-error@+1 {{all_reduce must be in place}}
  plan.collective all_reduce %a to %b by sum over ["x"] : memref<8xf32> to memref<16xf32>
}

// -----

plan.program @negative arena 192 io 0 {
  %a = plan.buffer arena at 0 lives [0, 9] : memref<8xf32>
  %b = plan.buffer arena at 64 lives [0, 9] : memref<16xf32>
  // expected-error@+1 {{requires counts that are not negative}}
  plan.collective all_gather %a to %b over ["x"] counts [17, -1] : memref<8xf32> to memref<16xf32>
}

// -----

plan.program @sum arena 192 io 0 {
  %a = plan.buffer arena at 0 lives [0, 9] : memref<8xf32>
  %b = plan.buffer arena at 64 lives [0, 9] : memref<16xf32>
  // expected-error@+1 {{has counts of 15 elements for a buffer of 16}}
  plan.collective all_gather %a to %b over ["x"] counts [8, 7] : memref<8xf32> to memref<16xf32>
}

// -----

plan.program @none_of_them arena 192 io 0 {
  %a = plan.buffer arena at 0 lives [0, 9] : memref<8xf32>
  %b = plan.buffer arena at 64 lives [0, 9] : memref<16xf32>
  // expected-error@+1 {{has a buffer of 8 elements, which is not one of its counts}}
  plan.collective reduce_scatter %b to %a by sum over ["x"] counts [9, 7] : memref<16xf32> to memref<8xf32>
}

// -----

plan.program @unequal arena 192 io 0 {
  %a = plan.buffer arena at 0 lives [0, 9] : memref<8xf32>
  %b = plan.buffer arena at 64 lives [0, 9] : memref<16xf32>
  %c = plan.buffer arena at 128 lives [0, 9] : memref<8xf32>
  // expected-error@+1 {{all_to_all has counts that do not divide 8 elements evenly}}
  plan.collective all_to_all %a to %c over ["x"] counts [5, 3] : memref<8xf32> to memref<8xf32>
}

// -----

plan.program @rows_of_whom arena 192 io 0 {
  %a = plan.buffer arena at 0 lives [0, 9] : memref<2x4xf32>
  %b = plan.buffer arena at 64 lives [0, 9] : memref<4x4xf32>
  // expected-error@+1 {{lacks counts of rows (`rows`)}}
  plan.collective exchange_rows %a to %b over ["x"] : memref<2x4xf32> to memref<4x4xf32>
}

// -----

plan.program @rows_of_none arena 192 io 0 {
  %a = plan.buffer arena at 0 lives [0, 9] : memref<2x2xi32>
  // expected-error@+1 {{has counts of rows, but exchanges none}}
  plan.collective all_reduce %a to %a rows %a : memref<2x2xi32> by sum over ["x"] : memref<2x2xi32> to memref<2x2xi32>
}

// -----

plan.program @rows_of_other_width arena 192 io 0 {
  %a = plan.buffer arena at 0 lives [0, 9] : memref<2x4xf32>
  %b = plan.buffer arena at 64 lives [0, 9] : memref<4x2xf32>
  %c = plan.buffer arena at 128 lives [0, 9] : memref<2x2xi32>
  // expected-error@+1 {{sends 'memref<2x4xf32>' and receives 'memref<4x2xf32>'}}
  plan.collective exchange_rows %a to %b rows %c : memref<2x2xi32> over ["x"] : memref<2x4xf32> to memref<4x2xf32>
}

// -----

plan.program @rows_counted_wrong arena 192 io 0 {
  %a = plan.buffer arena at 0 lives [0, 9] : memref<2x4xf32>
  %b = plan.buffer arena at 64 lives [0, 9] : memref<4x4xf32>
  %c = plan.buffer arena at 128 lives [0, 9] : memref<4xi32>
  // expected-error@+1 {{expects counts of type memref<2xNxi32> or memref<4xNxi32>, got 'memref<4xi32>'}}
  plan.collective exchange_rows %a to %b rows %c : memref<4xi32> over ["x"] : memref<2x4xf32> to memref<4x4xf32>
}

// -----

plan.program @permuted arena 192 io 0 {
  %a = plan.buffer arena at 0 lives [0, 9] : memref<8xf32>
  %b = plan.buffer arena at 64 lives [0, 9] : memref<16xf32>
  // expected-error@+1 {{sends 'memref<8xf32>' and receives 'memref<16xf32>'}}
  plan.collective permute %a to %b over ["x"] targets [1, 0] : memref<8xf32> to memref<16xf32>
}

// -----

plan.program @never_awaited arena 192 io 0 {
  %a = plan.buffer arena at 0 lives [0, 9] : memref<8xf32>
  %b = plan.buffer arena at 64 lives [0, 9] : memref<16xf32>
  // expected-error@+1 {{must be waited for once, in the block where it starts}}
  %t = plan.collective all_gather %a to %b over ["x"] counts [8, 8] : memref<8xf32> to memref<16xf32> -> !plan.ticket
}

// -----

// expected-error@+1 {{is a shard of rank 1 of a tensor of rank 2 that is sharded in 1 dimensions}}
plan.state "w" : memref<4xf32> parameter at 0 of [8, 1] cut <@mesh, [{"data"}]>

// -----

// expected-error@+1 {{is a partial (unreduced) value, which cannot be stored}}
plan.state "w" : memref<4xf32> parameter at 0 of [4] cut <@mesh, [{}], partial sum {"data"}>

// -----

// expected-error@+1 {{has one of `of` and `cut` without the other}}
plan.state "w" : memref<4xf32> parameter at 0 {global = array<i64: 4>}
