// A program whose spaces are host buffers, ready for a command list.
#pragma once
#include "runtime/hal/host/Collectives.h"
#include "runtime/hal/host/HostBuffer.h"

namespace tessera::hal {

struct HostProgram {
  SpaceAddresses spaces;
  Commands commands;
  HostCollectives collectives;

  /// Errors: bindings that do not fit the program, a collective that the
  /// channels cannot do; the latter names the program.
  static StatusOr<HostProgram> prepare(const artifact::Share &share,
                                       const artifact::DeviceCode &code,
                                       const artifact::Program &program,
                                       const Bindings &bindings);
};

} // namespace tessera::hal
