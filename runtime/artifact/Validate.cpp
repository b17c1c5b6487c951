#include "runtime/artifact/Validate.h"

#include "runtime/artifact/AppendedArtifact.h"
#include "runtime/artifact/Checker.h"

#include <algorithm>

namespace tessera::artifact {

std::uint64_t spaceBytes(const Share &share, const Program &program,
                         Space space) {
  switch (space) {
  case Space::state:
    return share.state_bytes();
  case Space::arena:
    return program.arena_bytes();
  case Space::io:
    return program.io_bytes();
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

Status checkInputs(Checker &checker) {
  const Artifact &artifact = checker.artifact;
  for (const auto &[text, what] :
       {std::pair(artifact.compiler_version(), "compiler_version"),
        std::pair(artifact.program_hash(), "program_hash"),
        std::pair(artifact.rebuild_command(), "rebuild_command")})
    if (!isLine(toView(text)))
      return checker.fail(&artifact, "{} holds control characters", what);
  return Status::success();
}

/// Whether the table in it is one is for its reader to find out.
Status checkPipeline(Checker &checker, const Pipeline *pipeline) {
  if (!isText(toView(pipeline->schedule())))
    return checker.fail(pipeline, "its schedule holds control characters");
  const auto stages = pipeline->forward()->size();
  for (const auto *work :
       {pipeline->forward(), pipeline->backward(), pipeline->weights()}) {
    if (!isAligned(work))
      return checker.fail(pipeline, "the work of its stages is misaligned");
    if (work->size() != stages)
      return checker.fail(pipeline,
                          "a pipeline with the work of {} stages one way and "
                          "of {} another",
                          stages, work->size());
  }
  return Status::success();
}

Status checkPipelines(Checker &checker) {
  const Artifact &artifact = checker.artifact;
  if (artifact.pipeline())
    TESSERA_RETURN_IF_ERROR(checkPipeline(checker, artifact.pipeline()));
  if (!artifact.pipelines_before())
    return Status::success();
  if (!artifact.pipeline())
    return checker.fail(artifact.pipelines_before(),
                        "loops of a pipeline before one that is not there");
  for (const Pipeline *each : *artifact.pipelines_before())
    TESSERA_RETURN_IF_ERROR(checkPipeline(checker, each));
  return Status::success();
}

/// Callers that set a program's inputs need not know on which device it runs.
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
      return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                        [](const Tensor *x, const Tensor *y) {
                          return isSameTensor(*x, *y) &&
                                 std::equal(
                                     x->shape()->begin(), x->shape()->end(),
                                     y->shape()->begin(), y->shape()->end());
                        });
    };
    if (!agree(*program->inputs(), *same->inputs()) ||
        !agree(*program->outputs(), *same->outputs()))
      return fail(program, fmt::format("inputs and outputs of program '{}' are",
                                       toView(program->name())));
  }
  return Status::success();
}

Status checkDevice(ShareChecker &share, const DeviceCode &device) {
  Checker &checker = share.checker;
  TESSERA_RETURN_IF_ERROR(validateCode(checker, device));
  for (const Program *program : *device.programs()) {
    if (!isIdentifier(toView(program->name())))
      return checker.fail(program, "program name '{}' is not a C identifier",
                          printable(toView(program->name())));
    TESSERA_RETURN_WITHIN(validateProgram(share, device, *program),
                          "program '{}'", toView(program->name()));
  }
  return checkUnique(checker, *device.programs(), "program",
                     [](const Program &p) { return toView(p.name()); });
}

Status checkDevices(ShareChecker &share) {
  Checker &checker = share.checker;
  const auto &devices = *share.share.devices();
  if (devices.size() == 0)
    return checker.fail(&share.share, "it is for no device");
  for (flatbuffers::uoffset_t i = 0; i < devices.size(); ++i) {
    const DeviceCode &device = *devices.Get(i);
    if (!isName(toView(device.device())))
      return checker.fail(&device,
                          "device {}: its name is empty, too long or "
                          "not plain ASCII",
                          i);
    TESSERA_RETURN_WITHIN(checkDevice(share, device), "device '{}'",
                          toView(device.device()));
    TESSERA_RETURN_IF_ERROR(checkAgreement(checker, *devices.Get(0), device));
  }
  return checkUnique(checker, devices, "device",
                     [](const DeviceCode &d) { return toView(d.device()); });
}

Status checkShare(Checker &checker, const Share &share) {
  ShareChecker checked(checker, share);
  if (share.state_bytes() > kMaxSpaceBytes)
    return checker.fail(&share, "a state of {} bytes exceeds {}",
                        share.state_bytes(), kMaxSpaceBytes);
  TESSERA_RETURN_IF_ERROR(validateOffsets(checked));
  TESSERA_RETURN_IF_ERROR(validateTensors(
      checked, {share.state(), "state tensor", Space::state,
                share.state_bytes(), [](Role role) {
                  return role == Role::parameter || role == Role::optimizer ||
                         role == Role::counter || role == Role::cache ||
                         role == Role::recurrent;
                }}));
  return checkDevices(checked);
}

Status checkArtifact(Checker &checker) {
  const Artifact &artifact = checker.artifact;
  TESSERA_RETURN_IF_ERROR(checkInputs(checker));
  if (artifact.schema_version() != kSchemaVersion)
    return checker.fail(&artifact,
                        "schema version {}, but this runtime reads {} "
                        "(the artifact is of compiler {})",
                        artifact.schema_version(), kSchemaVersion,
                        toView(artifact.compiler_version()));
  TESSERA_RETURN_IF_ERROR(checkPipelines(checker));
  TESSERA_RETURN_IF_ERROR(validateMesh(checker));
  const auto &shares = *artifact.shares();
  for (flatbuffers::uoffset_t i = 0; i < shares.size(); ++i) {
    const Status status = checkShare(checker, *shares.Get(i));
    if (!status.ok())
      return shares.size() == 1 ? status
                                : within(status, "share of rank {}",
                                         shares.Get(i)->ranks()->Get(0));
    TESSERA_RETURN_IF_ERROR(
        validateAgreement(checker, *shares.Get(0), *shares.Get(i)));
  }
  return validateWholeState(checker);
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
