// What the program of a plan needs, from programs that compile sooner: with
// fewer layers and model chunks, on the same mesh. A rank's bytes
// grow linearly in its layers and in those whose activations it holds at once,
// so the whole program's follow from two shallow ones.
#pragma once
#include "compiler/Driver.h"
#include "compiler/api/ProgramTimes.h"
#include "hardware/Cluster.h"
#include "parallelism/pipeline/Schedule.h"
#include "parallelism/planner/PlanFile.h"
#include "runtime/support/Status.h"
#include <map>

namespace tessera {

/// The parts of a program's size that do not change what one rank computes for
/// one layer and microbatch.
struct ProgramExtent {
  int64_t layers = 1;
  int64_t chunks = 1;       ///< of layers per rank of a pipeline
  int64_t microbatches = 1; ///< of a step
  bool operator==(const ProgramExtent &) const = default;
};

/// The fullest rank of a plan's program.
struct ProbedProgram {
  RankMemory fullest;
  /// Its own program was compiled, of a costly interleaved pipeline that of the
  /// fullest ranks; otherwise the bytes are extrapolated. In either case only
  /// @train_step and @init: an evaluation needs less.
  bool whole = false;
  double seconds = 0; ///< of a step: replayed
};

/// Compiles programs for one plan. Compilations write nothing, and several
/// probes may run at once.
class ProgramProbe {
public:
  /// `request` has spec, recipe and targets; mesh and batch are the plan's.
  /// Steps are replayed on `cluster`. An error if the model cannot be read.
  static StatusOr<ProgramProbe> create(CompileRequest request,
                                       const planner::MeshPlan &plan,
                                       planner::Cluster cluster);

  /// Seconds of one processor that `run` takes, roughly: the same on every
  /// machine.
  double cost() const;

  /// An error if the compiler refuses the plan.
  StatusOr<ProbedProgram> run() const;

  /// The programs that `run` compiles: the plan's own, or shallow ones.
  std::vector<ProgramExtent> extents() const;

private:
  struct Rank;
  using Ranks = std::vector<Rank>;

  ProgramProbe() = default;
  bool isPipeline() const { return plan.pipe > 1; }
  StatusOr<pipeline::Schedule> scheduleOf(const ProgramExtent &extent) const;
  bool isAffordable() const;
  bool compilesAllRanks() const;
  double copies(const ProgramExtent &extent, bool isWhole) const;
  double cost(const ProgramExtent &extent, bool isWhole) const;
  CompileRequest requestFor(const ProgramExtent &extent) const;
  StatusOr<std::vector<int64_t>> stageLayers(const ProgramExtent &extent) const;
  StatusOr<Ranks> compileAt(const ProgramExtent &extent,
                            std::vector<int64_t> stages) const;
  StatusOr<std::map<int64_t, Ranks>> compileExtents(const Ranks &wanted) const;
  StatusOr<std::vector<int64_t>> addLayers(const ProgramExtent &extent,
                                           Ranks &ranks) const;
  StatusOr<double> stepSeconds(const std::map<int64_t, Ranks> &points,
                               const Ranks &wanted,
                               const std::vector<int64_t> &layers) const;

  CompileRequest request;
  planner::MeshPlan plan;
  planner::Cluster cluster;
  std::string config; ///< config.json
  int64_t hidden = 0; ///< of the model
  ProgramExtent whole;
  bool isUniform = true; ///< all layers are alike
  bool isSparse = false; ///< has experts
};

} // namespace tessera
