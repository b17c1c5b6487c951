// A pipeline schedule as data: what each rank does in a step, in order. Which
// schedule it is shows nowhere but in the lists, so whoever checks, simulates,
// lowers or runs one knows no schedule by name.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/support/Status.h"

namespace tessera::pipeline {

/// What one instruction does. The first four compute on one microbatch at one
/// stage; B is I and W in one.
enum class Op : uint8_t {
  Forward,        ///< F
  Backward,       ///< B: gradients of the stage's input and of its weights
  BackwardInput,  ///< I: gradient of the stage's input
  BackwardWeight, ///< W: gradient of the stage's weights, any time after I
  Overlap,        ///< OVERLAP: F of one microbatch and B of another, woven
  SendForward,    ///< SEND_F: the stage's output to the next stage
  RecvForward,    ///< RECV_F: the stage's input from the stage before
  SendBackward,   ///< SEND_B: gradient of the stage's input, to the one before
  RecvBackward,   ///< RECV_B: gradient of the stage's output, from the next
  Unshard,        ///< UNSHARD: gather the stage's parameters
  Reshard,        ///< RESHARD: let go of what was gathered
  ReduceGrad,     ///< REDUCE_GRAD: sum the stage's gradients over replicas
  OptimizerStep,  ///< OPT_STEP: update what this rank owns
};
constexpr int opCount = int(Op::OptimizerStep) + 1;

/// "F", "SEND_B": what texts and CSV call it.
std::string_view name(Op op);

/// F, B, I, W and OVERLAP.
bool isCompute(Op op);
bool isSend(Op op);
bool isReceive(Op op);

/// One microbatch at one stage. What does not apply is -1.
struct Work {
  int32_t stage = -1;
  int32_t microbatch = -1;
  /// Slot of the rank that holds all this stage keeps of this microbatch: its
  /// input and saved activations, its output, and the gradients of both, each
  /// in a place of its own. -1 before lowering.
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

/// Lists of a pipeline. A chain is one copy of the model cut into stages; a
/// bidirectional schedule has two (replicas = 2), each microbatch runs through
/// one of them, and stages of equal place hold equal parameters. Chain k owns
/// the stages [k·S, (k+1)·S), S = stages / replicas.
struct Schedule {
  std::string name;
  int ranks = 0;
  int stages = 0; ///< of all chains
  int microbatches = 0;
  int replicas = 1;
  /// No microbatch goes back: there are F and their transfers alone, nothing is
  /// kept, reduced or updated.
  bool forwardOnly = false;
  std::vector<int> placement;         ///< rank of each stage
  std::vector<InstructionList> lists; ///< of each rank
  /// Activation slots of each rank; empty before lowering.
  std::vector<int> slots;

  int chainStages() const { return stages / replicas; }
  /// The chain that a microbatch runs through: contiguous shares, the first
  /// ones larger by one where they are uneven.
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
  /// Whether stages `stage` and `stage + 1` stand on different ranks.
  bool crosses(int stage) const {
    return !isLast(stage) && rankOf(stage) != rankOf(stage + 1);
  }
  /// Whether transfers are instructions of the lists (see Lower.h).
  bool isLowered() const { return !slots.empty(); }
  size_t instructionCount() const;
};

/// The forwards of a schedule of compute, in its order and on its ranks: what
/// runs once more before a step to count something of all microbatches. Where
/// `schedule` can run so can this, as F wait for F alone.
Schedule forwardsOf(const Schedule &schedule);

/// Whether the counts and the placement fit one another and every instruction
/// names a stage of its rank and a microbatch that visits it. Everything below
/// and beside this header wants a schedule that is well formed; `check`
/// (Check.h) proves the rest.
Status checkForm(const Schedule &schedule);
/// The two halves of checkForm: the counts and the placement, and, when they
/// are right, one instruction. What is wrong with it ("belongs to rank 2"), or
/// nothing.
Status checkCounts(const Schedule &schedule);
std::string instructionFault(const Schedule &schedule, int rank,
                             const Instruction &instruction);

/// The other end of a SEND or RECV of a schedule that is well formed.
int peerRank(const Schedule &schedule, const Instruction &transfer);
/// Whether a send and a receive are of the same thing.
bool meets(const Instruction &send, const Instruction &receive);

/// One line a rank, for people.
std::string toText(const Schedule &schedule);

/// One row a rank, one cell an instruction, as `toString` writes them. A first
/// line of comment holds what cells do not: name, counts, placement, and
/// `pass=forward` where no microbatch goes back.
std::string toCsv(const Schedule &schedule);

/// Reads what `toCsv` wrote, and tables of compute alone without the comment:
/// rows are ranks, empty cells are skipped, the counts and the placement follow
/// from the cells. `(0F4;3B1)OVERLAP_F_B` is `(0F4;3B1)`. The result is well
/// formed, but nothing says that it can run (Check.h). Errors name `where`,
/// line and column. The text may have 64 MiB; memory is proportional to it.
StatusOr<Schedule> parseCsv(std::string_view text, const std::string &where);

} // namespace tessera::pipeline
