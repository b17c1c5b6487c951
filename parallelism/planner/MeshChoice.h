// The mesh that a model is compiled for where a user names none: the planner's
// costs and memory over the meshes that the compiler can make of a recipe.
#pragma once
#include "parallelism/planner/Search.h"
#include "models/ModelSpec.h"
#include "runtime/recipe/Recipe.h"

namespace tessera::planner {

/// The sizes of a model that the compiler builds.
ModelShape shapeOf(const models::ModelSpec &spec);

/// `ranks` processes on one machine with `memory` bytes for all of them: a core
/// each, collectives through memory that they share. The figures are round
/// ones, not measured, so that a choice is the same on every machine.
Cluster hostCluster(int64_t ranks, double memory);

/// Workload::libraryBytes of such a process: MPI and the program itself.
constexpr double hostLibraryBytes = 64e6;

struct MeshQuestion {
  ModelShape model;
  recipe::Recipe recipe;
  Cluster cluster; ///< its devices are the world
  double libraryBytes = Workload().libraryBytes;
};

/// One mesh and what a step costs on it.
struct MeshCandidate {
  std::string mesh; ///< "pipe=2,data=2,zero=1"; empty: one device
  Candidate figures;
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
/// fastest that fits into usableMemory. The same question has the same answer.
/// The batch is the recipe's, so a microbatch that does not divide leaves ranks
/// with less to do, which costs. Error if no mesh is possible or none fits; it
/// says what stands in the way.
StatusOr<MeshChoice> chooseMesh(const MeshQuestion &question);

/// A line for the choice with its reason, and one for each other mesh.
std::string printChoice(const MeshQuestion &question, const MeshChoice &choice);

} // namespace tessera::planner
