// Chooses the mesh for `--mesh auto`: the planner's costs and memory for all
// meshes that the compiler supports for a recipe.
#pragma once
#include "models/ModelSpec.h"
#include "parallelism/planner/Search.h"
#include "runtime/recipe/Recipe.h"

namespace tessera::planner {

/// The sizes of a model that the compiler builds.
ModelShape shapeOf(const models::ModelSpec &spec);

/// `ranks` processes on one machine with `memory` bytes for all of them: a core
/// each, collectives through shared memory. The constants are round numbers,
/// not measurements, so that the choice is the same on every machine.
Cluster hostCluster(int64_t ranks, double memory);

/// Workload::libraryBytes of such a process: MPI and the program itself.
constexpr double hostLibraryBytes = 64e6;

struct MeshQuestion {
  ModelShape model;
  recipe::Recipe recipe;
  Cluster cluster; ///< its devices are the world
  double libraryBytes = Workload().libraryBytes;
};

/// One mesh and the cost of a step on it.
struct MeshCandidate {
  std::string mesh; ///< "pipe=2,data=2,zero=1"; empty: one device
  Candidate candidate;
};

struct MeshChoice {
  MeshCandidate chosen;
  /// The best meshes with other axes, fastest first, at most three.
  std::vector<MeshCandidate> others;
  int64_t fitting = 0;
  /// Faster than the chosen one, but does not fit.
  std::optional<MeshCandidate> tooLarge;
};

/// Chooses among data, expert, context, tensor, pipe with its schedules, and
/// zero: the simplest mesh (`complexity`) that is at most 2 % slower than the
/// fastest that fits into usableMemory. Deterministic. The batch is the
/// recipe's, so if a microbatch does not divide evenly some ranks have less
/// work, which costs time. An error if no mesh is possible or none fits, with
/// the reason.
StatusOr<MeshChoice> chooseMesh(const MeshQuestion &question);

/// A line for the choice with its reason, and one for each other mesh.
std::string printChoice(const MeshQuestion &question, const MeshChoice &choice);

} // namespace tessera::planner
