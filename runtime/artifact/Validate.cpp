#include "runtime/artifact/Validate.h"

#include "runtime/artifact/AppendedArtifact.h"
#include "runtime/artifact/Checker.h"

#include <algorithm>

namespace tessera::artifact {

std::uint64_t spaceBytes(const Artifact &artifact, const Program *program,
                         Space space) {
  switch (space) {
  case Space::state:
    return artifact.state_bytes();
  case Space::arena:
    return program->arena_bytes();
  case Space::io:
    return program->io_bytes();
  }
  return 0;
}

bool isName(std::string_view text) {
  return !text.empty() && text.size() <= kMaxNameBytes &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return c > ' ' && c <= '~' && c != '"' && c != '\'' && c != '\\';
         });
}

bool isIdentifier(std::string_view text) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !text.empty() && text.size() <= kMaxNameBytes && letter(text[0]) &&
         std::all_of(text.begin(), text.end(), [&](char c) {
           return letter(c) || (c >= '0' && c <= '9');
         });
}

bool isLine(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < ' ' || c == '\x7f';
  });
}

bool isText(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) < ' ' && c != '\n') || c == '\x7f';
  });
}

std::string_view printable(std::string_view text) {
  return text.size() <= kMaxNameBytes && isLine(text) ? text : "(unprintable)";
}

namespace {

Status checkTexts(Checker &checker) {
  const Artifact &artifact = checker.artifact;
  for (const auto &[text, what] :
       {std::pair(artifact.compiler_version(), "compiler_version"),
        std::pair(artifact.program_hash(), "program_hash"),
        std::pair(artifact.rebuild_command(), "rebuild_command")})
    if (!isLine(toView(text)))
      return checker.fail(&artifact, "{} holds control characters", what);
  return Status::success();
}

bool sameTensor(const Tensor &a, const Tensor &b) {
  return toView(a.name()) == toView(b.name()) && a.type() == b.type() &&
         a.role() == b.role() &&
         std::equal(a.shape()->begin(), a.shape()->end(), b.shape()->begin(),
                    b.shape()->end());
}

/// Whoever feeds a program need not know on which device it runs.
Status checkAgreement(Checker &checker, const DeviceCode &first,
                      const DeviceCode &other) {
  const auto fail = [&](const void *where, std::string_view what) {
    return checker.fail(where, "device '{}': {} not those of device '{}'",
                        toView(other.device()), what, toView(first.device()));
  };
  if (first.programs()->size() != other.programs()->size())
    return fail(&other, "its programs are");
  for (const Program *program : *other.programs()) {
    const auto same =
        std::find_if(first.programs()->begin(), first.programs()->end(),
                     [&](const Program *p) {
                       return toView(p->name()) == toView(program->name());
                     });
    if (same == first.programs()->end())
      return fail(program, "its programs are");
    const auto agree = [](const auto &a, const auto &b) {
      return std::equal(
          a.begin(), a.end(), b.begin(), b.end(),
          [](const Tensor *x, const Tensor *y) { return sameTensor(*x, *y); });
    };
    if (!agree(*program->inputs(), *same->inputs()) ||
        !agree(*program->outputs(), *same->outputs()))
      return fail(program, fmt::format("inputs and outputs of program '{}' are",
                                       toView(program->name())));
  }
  return Status::success();
}

Status checkDevice(Checker &checker, const DeviceCode &device) {
  TESSERA_RETURN_IF_ERROR(validateCode(checker, device));
  for (const Program *program : *device.programs()) {
    if (!isIdentifier(toView(program->name())))
      return checker.fail(program, "program name '{}' is not a C identifier",
                          printable(toView(program->name())));
    TESSERA_RETURN_WITHIN(validateProgram(checker, device, *program),
                          "program '{}'", toView(program->name()));
  }
  return checkUnique(checker, *device.programs(), "program",
                     [](const Program &p) { return toView(p.name()); });
}

Status checkDevices(Checker &checker) {
  const auto &devices = *checker.artifact.devices();
  if (devices.size() == 0)
    return checker.fail(&checker.artifact, "it is for no device");
  for (flatbuffers::uoffset_t i = 0; i < devices.size(); ++i) {
    const DeviceCode &device = *devices.Get(i);
    if (!isName(toView(device.device())))
      return checker.fail(&device,
                          "device {}: its name is empty, too long or "
                          "not plain ASCII",
                          i);
    TESSERA_RETURN_WITHIN(checkDevice(checker, device), "device '{}'",
                          toView(device.device()));
    TESSERA_RETURN_IF_ERROR(checkAgreement(checker, *devices.Get(0), device));
  }
  return checkUnique(checker, devices, "device",
                     [](const DeviceCode &d) { return toView(d.device()); });
}

Status checkArtifact(Checker &checker) {
  const Artifact &artifact = checker.artifact;
  TESSERA_RETURN_IF_ERROR(checkTexts(checker));
  if (artifact.schema_version() != kSchemaVersion)
    return checker.fail(&artifact,
                        "schema version {}, but this runtime reads {} "
                        "(the artifact is of compiler {})",
                        artifact.schema_version(), kSchemaVersion,
                        toView(artifact.compiler_version()));
  if (artifact.state_bytes() > kMaxSpaceBytes)
    return checker.fail(&artifact, "a state of {} bytes exceeds {}",
                        artifact.state_bytes(), kMaxSpaceBytes);
  TESSERA_RETURN_IF_ERROR(validateTensors(
      checker, {artifact.state(), "state tensor", Space::state,
                artifact.state_bytes(), [](Role role) {
                  return role == Role::parameter || role == Role::optimizer ||
                         role == Role::counter || role == Role::cache;
                }}));
  return checkDevices(checker);
}

} // namespace

Status validate(const Artifact &artifact, const BufferPlace &place) {
  Checker checker(artifact);
  Status status = checkArtifact(checker);
  if (status.ok())
    return status;
  return Status::error(
      "{}: offset {:#x}: {}; rebuild it: {}", place.file,
      place.fileOffset + static_cast<std::uint64_t>(checker.at - place.begin),
      status.message(), printable(toView(artifact.rebuild_command())));
}

} // namespace tessera::artifact
