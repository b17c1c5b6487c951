// Chooses the mesh for `--mesh auto`: the planner's costs and memory for all
// meshes that the compiler supports for a recipe.
#pragma once
#include "parallelism/planner/Search.h"
#include "runtime/recipe/Recipe.h"
#include <span>

namespace tessera::planner {

/// Workload::libraryBytes of a process of hostCluster: MPI and the program
/// itself.
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
  bool fits = true; ///< by the memory model
  /// The best meshes with other axes, fastest first, at most three.
  std::vector<MeshCandidate> others;
  int64_t fitting = 0;
  /// Faster than the chosen one, but does not fit.
  std::optional<MeshCandidate> tooLarge;
  /// The mesh that needs least by the memory model.
  MeshCandidate smallest;
};

/// Chooses among data, expert, context, tensor with or without folded experts,
/// pipe with its schedules, zero, and replicate as `search` does: the simplest
/// mesh (`complexity`) that is at most 2 % slower than the fastest that fits
/// into usableMemory. Deterministic. The batch is the recipe's, so if a
/// microbatch does not divide evenly some ranks have less work, which costs
/// time. Meshes of `refused` are left out. If none fits by the memory model the
/// smallest is chosen, unless it was refused. An error with the reason if
/// nothing is left.
StatusOr<MeshChoice> chooseMesh(const MeshQuestion &question,
                                std::span<const std::string> refused = {});

/// The meshes that fit by the memory model, a group for each choice of axes: in
/// it those that differ in schedule, chunks and ZeRO. The fastest come first,
/// groups and in a group. An error with the reason if nothing fits.
StatusOr<std::vector<std::vector<MeshCandidate>>>
meshesByAxes(const MeshQuestion &question);

/// A line for the choice with its reason, and one for each other mesh.
/// `needed`: bytes of the compiled program, libraries included.
std::string printChoice(const MeshQuestion &question, const MeshChoice &choice,
                        double needed);

/// How a mesh is named: "mesh data=2", or "one device".
std::string meshName(const std::string &mesh);

} // namespace tessera::planner
