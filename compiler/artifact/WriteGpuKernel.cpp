// What an artifact says of a kernel for GPUs.
#include "compiler/artifact/WriteDevice.h"

using namespace mlir;
using namespace tessera;
namespace fb = tessera::artifact;

static std::unique_ptr<fb::TensorMapT> makeMap(const GpuKernel::Map &from) {
  const device::TensorBoxes &boxes = from.boxes;
  auto result = std::make_unique<fb::TensorMapT>();
  result->buffer = from.buffer;
  result->offset = boxes.base;
  result->type = fb::ElementType::bf16; // the only one that is printed
  result->sizes.assign(boxes.sizes, boxes.sizes + boxes.rank);
  result->strides.assign(boxes.strides, boxes.strides + boxes.rank - 1);
  result->box.assign(boxes.box, boxes.box + boxes.rank);
  result->swizzle = static_cast<uint8_t>(boxes.swizzle);
  return result;
}

std::unique_ptr<fb::GpuKernelT> tessera::makeGpuKernel(const GpuKernel &from) {
  auto result = std::make_unique<fb::GpuKernelT>();
  result->threads = from.threads;
  result->shared_bytes = from.sharedBytes;
  result->registers = from.registers;
  result->static_shared_bytes = from.staticSharedBytes;
  result->stack_bytes = from.stackBytes;
  result->spill_bytes = from.spillBytes;
  result->hmma = from.hmma;
  result->hgmma = from.hgmma;
  result->source = from.source;
  for (const GpuKernel::Map &map : from.maps)
    result->maps.push_back(makeMap(map));
  return result;
}

std::unique_ptr<fb::GemmT> tessera::makeGemm(tile::GemmAttr from) {
  auto operand = [](ArrayRef<int64_t> numbers) {
    auto result = std::make_unique<fb::GemmOperandT>();
    result->buffer = numbers[0];
    result->offset = numbers[1];
    result->major = numbers[2];
    result->minor = numbers[3];
    result->batch = numbers[4];
    return result;
  };
  auto result = std::make_unique<fb::GemmT>();
  result->m = from.getSizes()[0];
  result->n = from.getSizes()[1];
  result->k = from.getSizes()[2];
  result->batches = from.getSizes()[3];
  result->lhs = operand(from.getLhs());
  result->rhs = operand(from.getRhs());
  result->result = operand(from.getResult());
  result->accumulates = from.getAccumulates();
  return result;
}
