#include "dialects/graph/GraphComposite.h"

using namespace mlir;
using namespace tessera::graph;

Type tessera::graph::detail::statisticsType(Value x) {
  Type element = tensorType(x).getElementType();
  return element.isF64() ? element : Float32Type::get(element.getContext());
}
