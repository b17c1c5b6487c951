// Walks a flattened program in the host's memory: the order of commands, loops,
// profile and check for NaN, which do not depend on how a device runs kernels.
#pragma once
#include "runtime/hal/Device.h"
#include "runtime/hal/Profile.h"
#include "runtime/hal/host/Collectives.h"
#include "runtime/hal/host/Commands.h"

#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace tessera::hal {

class HostCommandList : public CommandList {
public:
  /// `code` has host addresses; `arena` is the program's. `prepareArena` is the
  /// byte that fills it before every run; none leaves it as it is.
  /// `collectives` are those of `code`.
  HostCommandList(std::string_view program, Commands code,
                  HostCollectives collectives, std::span<std::byte> arena,
                  const RecordOptions &options,
                  std::optional<std::uint8_t> prepareArena);
  Status run() override;
  const Profile *profile() const override { return measured.get(); }

protected:
  virtual Status launch(const LaunchCommand &launch) = 0;
  virtual void copy(std::byte *to, const std::byte *from,
                    std::uint64_t bytes) = 0;
  virtual void fill(std::byte *to, std::uint8_t value, std::uint64_t bytes) = 0;

  std::string_view program;
  Commands code; ///< with the pointers of the loops' current iterations

private:
  Status step(const Command &command);
  Status execute(const Command &command);

  HostCollectives collectives;
  std::span<std::byte> arena;
  std::optional<std::uint8_t> prepareArena;
  bool check;
  Walk walk; // through `code`
  std::unique_ptr<Profile> measured;
};

} // namespace tessera::hal
