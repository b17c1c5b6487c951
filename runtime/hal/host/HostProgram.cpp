#include "runtime/hal/host/HostProgram.h"

namespace tessera::hal {

StatusOr<HostProgram> HostProgram::prepare(const artifact::Share &share,
                                           const artifact::DeviceCode &code,
                                           const artifact::Program &program,
                                           const Bindings &bindings) {
  TESSERA_RETURN_IF_ERROR(checkBindings(share, program, bindings));
  const SpaceAddresses spaces = hostAddresses(bindings);
  Commands commands = flatten(code, program, spaces);
  auto collectives = HostCollectives::prepare(commands, bindings.channels);
  if (!collectives.ok())
    return Status::error("program '{}': {}", artifact::toView(program.name()),
                         collectives.message());
  return HostProgram{spaces, std::move(commands), collectives.take()};
}

} // namespace tessera::hal
