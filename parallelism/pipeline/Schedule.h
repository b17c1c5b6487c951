// A pipeline schedule as data: the instructions of each rank in a step, in
// order. Checking, simulating, lowering and executing a schedule depend only on
// these lists, not on its name.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/support/Status.h"

namespace tessera::pipeline {

/// The operation of an instruction. The first four compute on one microbatch at
/// one stage; B is I and W in one.
enum class Op : uint8_t {
  Forward,        ///< F
  Backward,       ///< B: gradients of the stage's input and of its weights
  BackwardInput,  ///< I: gradient of the stage's input
  BackwardWeight, ///< W: gradient of the stage's weights, any time after I
  Overlap,        ///< OVERLAP: F of one microbatch overlapped with B of another
  SendForward,    ///< SEND_F: the stage's output to the next stage
  RecvForward,    ///< RECV_F: the stage's input from the previous stage
  SendBackward,  ///< SEND_B: gradient of the stage's input, to the previous one
  RecvBackward,  ///< RECV_B: gradient of the stage's output, from the next
  Unshard,       ///< UNSHARD: gather the stage's parameters
  Reshard,       ///< RESHARD: release the gathered parameters
  ReduceGrad,    ///< REDUCE_GRAD: sum the stage's gradients over replicas
  OptimizerStep, ///< OPT_STEP: update what this rank owns
};
constexpr int opCount = int(Op::OptimizerStep) + 1;

/// "F", "SEND_B": the name in CSV and messages.
std::string_view name(Op op);

/// F, B, I, W and OVERLAP.
bool isCompute(Op op);
bool isSend(Op op);
bool isReceive(Op op);

/// One microbatch at one stage. Fields that do not apply are -1.
struct Work {
  int32_t stage = -1;
  int32_t microbatch = -1;
  /// The rank's slot for everything that this stage keeps of this microbatch:
  /// its input and saved activations, its output, and the gradients of both,
  /// each at a separate location. -1 before lowering.
  int32_t buffer = -1;

  bool operator==(const Work &) const = default;
};

struct Instruction {
  Op op = Op::Forward;
  Work work;     ///< of an OVERLAP: the forward half
  Work backward; ///< the other half of an OVERLAP, unused elsewhere

  bool operator==(const Instruction &) const = default;
};

/// "2F3", "2F3@1" with its buffer, "(0F4;3B1)", "2UNSHARD", "OPT_STEP".
std::string toString(const Instruction &instruction);

using InstructionList = std::vector<Instruction>;

/// The lists of a pipeline. A chain is one copy of the model partitioned into
/// stages; a bidirectional schedule has two (replicas = 2), each microbatch
/// runs through one of them, and stages at equal positions have equal
/// parameters. Chain k has the stages [k·S, (k+1)·S), S = stages / replicas.
struct Schedule {
  std::string name;
  int ranks = 0;
  int stages = 0; ///< of all chains
  int microbatches = 0;
  int replicas = 1;
  /// No backward pass: there are only F and their transfers, nothing is kept,
  /// reduced or updated.
  bool forwardOnly = false;
  std::vector<int> placement;         ///< rank of each stage
  std::vector<InstructionList> lists; ///< of each rank
  /// Activation slots of each rank; empty before lowering.
  std::vector<int> slots;

  int chainStages() const { return stages / replicas; }
  /// The chain that a microbatch runs through: each chain has contiguous
  /// microbatches, the first chains one more if they do not divide evenly.
  int chainOf(int microbatch) const {
    return int(int64_t(microbatch) * replicas / microbatches);
  }
  bool visits(int stage, int microbatch) const {
    return stage / chainStages() == chainOf(microbatch);
  }
  bool isFirst(int stage) const { return stage % chainStages() == 0; }
  bool isLast(int stage) const {
    return stage % chainStages() == chainStages() - 1;
  }
  int rankOf(int stage) const { return placement[size_t(stage)]; }
  /// Whether stages `stage` and `stage + 1` are on different ranks.
  bool crosses(int stage) const {
    return !isLast(stage) && rankOf(stage) != rankOf(stage + 1);
  }
  /// Whether transfers are instructions of the lists (see Lower.h).
  bool isLowered() const { return !slots.empty(); }
  size_t instructionCount() const;
};

/// The forwards of a schedule of compute, in its order and on its ranks: for a
/// loop before a step that counts something of all microbatches. If `schedule`
/// can run so can this, because F wait only for F.
Schedule forwardsOf(const Schedule &schedule);

/// Checks that the schedule is well formed: counts and placement are consistent
/// and every instruction names a stage of its rank and a microbatch that visits
/// it. All functions below and in other headers require that; `check` (Check.h)
/// verifies the rest.
Status checkForm(const Schedule &schedule);
/// The two halves of checkForm: the counts and the placement, and then one
/// instruction. Returns its fault ("belongs to rank 2"), or nothing.
Status checkCounts(const Schedule &schedule);
std::string instructionFault(const Schedule &schedule, int rank,
                             const Instruction &instruction);

/// The other end of a SEND or RECV of a schedule that is well formed.
int peerRank(const Schedule &schedule, const Instruction &transfer);
/// Whether a send and a receive are of the same thing.
bool meets(const Instruction &send, const Instruction &receive);

/// One line for each rank, for people.
std::string toText(const Schedule &schedule);

/// One row for each rank, one cell for each instruction, as `toString` writes
/// them. A first comment line has the name, counts, placement, and
/// `pass=forward` for a schedule of forwards only.
std::string toCsv(const Schedule &schedule);

/// Reads the output of `toCsv`, and tables of compute only without the comment:
/// rows are ranks, empty cells are skipped, the counts and the placement follow
/// from the cells. `(0F4;3B1)OVERLAP_F_B` is `(0F4;3B1)`. The result is well
/// formed, but may not be executable (Check.h). Errors name `where`, line and
/// column. The input has at most 64 MiB; memory is proportional to it.
StatusOr<Schedule> parseCsv(std::string_view text, const std::string &where);

} // namespace tessera::pipeline
