// How much of the engine each tenant has had: fair queueing among tenants by
// the tokens that are computed for them (Sheng et al., Fairness in Serving
// Large Language Models, 2024: virtual token counters).
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>

namespace tessera {

class TenantShares {
public:
  /// A request of the tenant arrives. If it had none, it has no claim to what
  /// it did not use meanwhile.
  void arrive(uint64_t tenant) {
    Share &share = shares[tenant];
    if (share.requests++ == 0)
      share.served = std::max(share.served, now);
  }
  /// A request of the tenant ends.
  void leave(uint64_t tenant) {
    Share &share = shares[tenant];
    // What it had decides nothing any more once others have had as much.
    if (--share.requests == 0 && share.served <= now)
      shares.erase(tenant);
  }
  /// The tenant's next request is admitted: as much as it has had, all have
  /// had that wait.
  void admit(uint64_t tenant) { now = std::max(now, served(tenant)); }
  void charge(uint64_t tenant, double cost) { shares[tenant].served += cost; }
  double served(uint64_t tenant) const {
    const auto found = shares.find(tenant);
    return found == shares.end() ? now : found->second.served;
  }

private:
  struct Share {
    double served = 0;
    int64_t requests = 0; ///< unfinished
  };
  std::map<uint64_t, Share> shares;
  double now = 0; ///< of the tenant that was admitted last
};

/// Costs of tokens: a generated one takes a row of a step, one of a prompt only
/// a part of a chunk.
inline constexpr double kPromptCost = 1, kGeneratedCost = 2;

} // namespace tessera
