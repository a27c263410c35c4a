/* The entry header of ACL programs: the host stand-ins of the runtime and everything they need. */
#ifndef QKVFUSE_ACL_ACL_H_
#define QKVFUSE_ACL_ACL_H_

#include <stdio.h> /* programs written for ACL call printf after including this header alone */

#include "acl/acl_rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* configPath may be null and is not read. 100002 when already initialised; the call then counts as
 * one more reference. */
ACL_FUNC_VISIBILITY aclError aclInit(const char *configPath);

/* Ends the use of ACL whatever the number of references. 100037 when there is nothing to end. */
ACL_FUNC_VISIBILITY aclError aclFinalize(void);

/* Gives one reference back; the last one ends the use of ACL. refCount, if not null, receives the
 * number of references left. 100037 when there is none. */
ACL_FUNC_VISIBILITY aclError aclFinalizeReference(uint64_t *refCount);

#ifdef __cplusplus
}
#endif

#endif /* QKVFUSE_ACL_ACL_H_ */
