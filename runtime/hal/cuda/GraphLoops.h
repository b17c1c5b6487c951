// A graph in which loops have a count that the GPU computes: each is a
// conditional node, whose body is captured once and repeated by the GPU. The
// host reads nothing.
#pragma once
#include "runtime/hal/cuda/Gpu.h"

#include <string>
#include <vector>

namespace tessera::hal::cuda {

/// Captured piece by piece from the GPU's stream, one after the other:
///
///     beginPiece(); ...; endPiece();                  straight on
///     beginLoop(count, trip); ...; endLoop();         a loop's body
///
/// The GPU's context must be current. After an error the stream captures no
/// longer, and the graph is of no use.
class GraphLoops {
public:
  /// Of a driver that has such graphs.
  explicit GraphLoops(std::shared_ptr<Gpu> gpu) : gpu(std::move(gpu)) {}
  /// Loads the kernel that counts; memory for `loops` numbers of iterations.
  Status create(std::size_t loops);

  Status beginPiece();
  Status endPiece(const Status &captured);
  /// As many iterations as the i32 at the address says, `trip` at most.
  Status beginLoop(Address count, std::uint64_t trip);
  Status endLoop(const Status &captured);

  /// What a body has that the GPU cannot repeat, as functions of the host; an
  /// empty string if it has nothing of that kind.
  const std::string &obstacle() const { return refused; }
  /// Of the whole; once.
  StatusOr<Owned<GraphRun>> instantiate();

private:
  Status endCapture(const Status &captured);
  Status countIteration(bool isFirst);
  Status checkBody();

  std::shared_ptr<Gpu> gpu;
  Owned<Module> module;
  Kernel counts = nullptr;
  Owned<Graph> graph;
  std::vector<GraphNode> last; ///< what comes next is after these
  std::vector<GraphEdge> edges;

  Owned<Address> iterations; ///< a u64 of each loop
  std::size_t loopCount = 0;
  struct Loop {
    Condition condition = 0;
    Address count = 0, iteration = 0;
    std::uint64_t trip = 0;
    Graph body = nullptr;
  } loop; ///< the current one
  std::string refused;
};

} // namespace tessera::hal::cuda
