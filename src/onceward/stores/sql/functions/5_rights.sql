-- Who claims may do so in any scope, so nobody may until somebody says so:
--   GRANT EXECUTE ON FUNCTION onceward_claim, onceward_settle, onceward_settle_bytes TO the_role;
-- A role that calls a procedure of yours, which is SECURITY DEFINER, needs EXECUTE on that procedure only.
REVOKE ALL ON FUNCTION onceward_claim FROM PUBLIC;
REVOKE ALL ON FUNCTION onceward_settle FROM PUBLIC;
REVOKE ALL ON FUNCTION onceward_settle_bytes FROM PUBLIC;
REVOKE ALL ON FUNCTION onceward_put_settled FROM PUBLIC;
REVOKE ALL ON FUNCTION onceward_must_be_settled FROM PUBLIC;
